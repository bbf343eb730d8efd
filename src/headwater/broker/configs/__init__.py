"""Every topic, broker and group setting the broker supports: Kafka's names, types and defaults, each validated."""

from headwater.broker.configs.keys import ConfigKey, ConfigRefused, ConfigSource, ConfigType, Parsed
from headwater.broker.configs.resolve import BrokerConfig, Effective, Origin

__all__ = ["BrokerConfig", "ConfigKey", "ConfigRefused", "ConfigSource", "ConfigType", "Effective", "Origin", "Parsed"]
