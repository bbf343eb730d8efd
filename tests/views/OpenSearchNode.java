import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** One real OpenSearch node from Maven jars, for tests: OpenSearchNode HOME HTTP_PORT TRANSPORT_PORT. */
public class OpenSearchNode extends Node {
    OpenSearchNode(Environment environment, Collection<Class<? extends Plugin>> plugins) {
        super(environment, plugins, false);
    }

    public static void main(String[] words) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", words[0])
            .put("cluster.name", "headwater-test")
            .put("node.name", "one")
            .put("network.host", "127.0.0.1")
            .put("http.port", words[1])
            .put("transport.port", words[2])
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(settings, Collections.emptyMap(), null, () -> "one");
        Collection<Class<? extends Plugin>> plugins = new ArrayList<>();
        plugins.add(Netty4Plugin.class);
        Node node = new OpenSearchNode(environment, plugins);
        node.start();
        System.out.println("started");
        Thread.currentThread().join();
    }
}
