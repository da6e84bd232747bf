package org.apache.kafka.common.utils;

/** Where plugins of Kafka 4.3 look for the version; 4.4 moved the class into a package below. */
public final class AppInfoParser {
    private AppInfoParser() {}

    public static String getVersion() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion();
    }
}
