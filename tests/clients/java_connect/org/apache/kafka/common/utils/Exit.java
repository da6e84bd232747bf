package org.apache.kafka.common.utils;

/** How MirrorMaker of Kafka 4.3 ends its process; 4.4 moved the class into a package below. */
public final class Exit {
    private Exit() {}

    public static void exit(int code) {
        org.apache.kafka.common.utils.internals.Exit.exit(code);
    }

    public static void addShutdownHook(String name, Runnable action) {
        org.apache.kafka.common.utils.internals.Exit.addShutdownHook(name, action);
    }
}
