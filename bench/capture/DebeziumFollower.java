// Debezium's engine over one table until it has had N events; prints one JSON line.
// usage: PORT SLOT SNAPSHOT_MODE EVENTS OUTPUT_FILE|- [property=value ...]
// With OUTPUT_FILE every event is written there, a JSON object a line; otherwise it is only counted. "latency" as a
// property asks for the time between the row's own time stamp (microseconds, in column `at`) and its arrival.
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class DebeziumFollower {
  static final Pattern AT = Pattern.compile("\"after\":\\{[^}]*\"at\":(\\d+)");
  static long first = 0, last = 0, count = 0;

  public static void main(String[] words) throws Exception {
    long wanted = Long.parseLong(words[3]);
    boolean latency = false;
    Properties given = new Properties();
    String[][] fixed = {
      {"name", "bench"},
      {"connector.class", "io.debezium.connector.postgresql.PostgresConnector"},
      {"offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore"},
      {"offset.flush.interval.ms", "10000"},
      {"database.hostname", "127.0.0.1"},
      {"database.port", words[0]},
      {"database.user", "postgres"},
      {"database.password", "x"},
      {"database.dbname", "postgres"},
      {"topic.prefix", "bench"},
      {"plugin.name", "pgoutput"},
      {"slot.name", words[1]},
      {"publication.name", "bench"},
      {"publication.autocreate.mode", "disabled"},
      {"snapshot.mode", words[2]},
      {"key.converter.schemas.enable", "false"},
      {"value.converter.schemas.enable", "false"}};
    for (String[] pair : fixed) given.setProperty(pair[0], pair[1]);
    for (int i = 5; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      if (pair[0].equals("latency")) latency = true;
      else given.setProperty(pair[0], pair[1]);
    }
    boolean timed = latency;
    ArrayList<Long> delays = new ArrayList<>();
    PrintWriter out = words[4].equals("-") ? null : new PrintWriter(words[4], StandardCharsets.UTF_8);
    CountDownLatch done = new CountDownLatch(1);
    DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(given)
        .using((ok, message, error) -> { if (!ok) { System.err.println(message + " " + error); } done.countDown(); })
        .notifying((records, committer) -> {
          for (ChangeEvent<String, String> record : records) {
            String value = record.value();
            if (out != null) {
              out.println("{\"topic\":\"" + record.destination() + "\",\"key\":" + record.key() + ",\"value\":" + value + "}");
            }
            committer.markProcessed(record);
            if (first == 0) first = System.nanoTime();
            if (timed && value != null) {
              Matcher found = AT.matcher(value);
              Instant now = Instant.now();
              if (found.find()) delays.add(now.getEpochSecond() * 1000000L + now.getNano() / 1000 - Long.parseLong(found.group(1)));
            }
            if (++count >= wanted) { last = System.nanoTime(); done.countDown(); }
          }
          committer.markBatchFinished();
        }).build();
    Executors.newSingleThreadExecutor().execute(engine);
    done.await();
    if (out != null) out.close();
    var system = (com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean();
    long peak = 0;
    for (String line : Files.readAllLines(Path.of("/proc/self/status")))
      if (line.startsWith("VmHWM")) peak = Long.parseLong(line.replaceAll("\\D+", "")) / 1024;
    Collections.sort(delays);
    long p50 = delays.isEmpty() ? 0 : delays.get(delays.size() / 2), p99 = delays.isEmpty() ? 0 : delays.get(delays.size() * 99 / 100);
    System.out.printf("{\"events\":%d,\"seconds\":%.4f,\"cpu_s\":%.3f,\"peak_mib\":%d,\"p50_ms\":%.3f,\"p99_ms\":%.3f}%n",
        count, (last - first) / 1e9, system.getProcessCpuTime() / 1e9, peak, p50 / 1e3, p99 / 1e3);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
