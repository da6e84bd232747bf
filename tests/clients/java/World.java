import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What every scenario works with. All names of topics, groups and transactions have its prefix. */
final class World {
    static final short REPLICAS = 3;
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long DEADLINE_MS = 30_000;

    final Admin admin;
    private final String bootstrap;
    private final String prefix;

    World(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.admin = Admin.create(properties());
    }

    private Properties properties(String... more) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            all.put(more[i], more[i + 1]);
        }
        return all;
    }

    String name(String of) {
        return prefix + "-" + of;
    }

    /** Makes a topic; returns its whole name when each partition has a leader. */
    String topic(String of, int partitions, Map<String, String> configs) throws Exception {
        String name = name(of);
        NewTopic topic = new NewTopic(name, partitions, REPLICAS).configs(configs);
        admin.createTopics(List.of(topic)).all().get();
        until("every partition has a leader", () -> partitions(name) == partitions);
        return name;
    }

    String topic(String of, int partitions) throws Exception {
        return topic(of, partitions, Map.of());
    }

    /** The first description by a broker that knows so many partitions of the topic. */
    TopicDescription described(String topic, int partitions) throws InterruptedException {
        var found = new TopicDescription[1];
        until("it is described", () -> {
            try {
                found[0] = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                return found[0].partitions().size() == partitions;
            } catch (ExecutionException | InterruptedException error) {
                return false;
            }
        });
        return found[0];
    }

    /** How many partitions with a leader the topic has; 0 if it is not known. */
    int partitions(String topic) {
        try {
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return (int) described.partitions().stream().filter(p -> p.leader() != null).count();
        } catch (ExecutionException | InterruptedException error) {
            return 0;
        }
    }

    static void until(String what, BooleanSupplier isSo) throws InterruptedException {
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (!isSo.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("not so in time: " + what);
            }
            Thread.sleep(20);
        }
    }

    KafkaProducer<String, String> producer(String... more) {
        return new KafkaProducer<>(properties(more), new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(String... more) {
        Properties all = properties(
            "enable.auto.commit", "false", "auto.offset.reset", "earliest",
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "200",
            "fetch.max.wait.ms", "200");
        all.putAll(properties(more));
        if ("consumer".equals(all.get("group.protocol"))) {
            // There the group says how long a session lasts.
            all.remove("session.timeout.ms");
            all.remove("heartbeat.interval.ms");
        }
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** A consumer of partition 0 from its beginning. */
    KafkaConsumer<String, String> assigned(String topic, String... more) {
        KafkaConsumer<String, String> consumer = consumer(more);
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        return consumer;
    }

    /** Writes numbered values to each partition. */
    void fill(String topic, int partitions, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int partition = 0; partition < partitions; partition++) {
                for (int i = 0; i < count; i++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, "" + i));
                }
            }
        }
    }

    /** Polls until there are so many records. */
    static List<ConsumerRecord<String, String>> take(KafkaConsumer<String, String> from, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + DEADLINE_MS;
        while (found.size() < count) {
            from.poll(POLL).forEach(found::add);
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(found.size() + " records of " + count + " in time");
            }
        }
        return found;
    }

    long committed(String group, String topic) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        return Optional.ofNullable(offsets.get(new TopicPartition(topic, 0)))
            .map(OffsetAndMetadata::offset).orElse(-1L);
    }

    interface Attempt {
        void run() throws Exception;
    }

    /** Kafka's name of the error that the attempt ends with. */
    static Map<String, Object> failed(Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            Errors known = Errors.forException(cause);
            // Some errors the client makes an exception of its own of, which has no code.
            String name = cause.getClass().getSimpleName();
            return outcome("error", known == Errors.UNKNOWN_SERVER_ERROR ? name : known.name());
        }
        return outcome("error", "NONE");
    }

    /** name, value, name, value... */
    static Map<String, Object> outcome(Object... pairs) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            found.put((String) pairs[i], pairs[i + 1]);
        }
        return found;
    }
}
