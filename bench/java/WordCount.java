import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams counts the records of a topic by the first two bytes of their values, through a
 * repartition topic, and writes each count to another topic. Arguments: bootstrap servers, the two
 * topics, the number of records. It prints the seconds from the first count to the last one.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        long records = Long.parseLong(arguments[3]);
        Properties configs = new Properties();
        configs.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        configs.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1] + "-count");
        configs.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        configs.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        configs.put(StreamsConfig.STATE_DIR_CONFIG,
                java.nio.file.Files.createTempDirectory("count").toString());
        configs.put("auto.offset.reset", "earliest");
        AtomicLong counted = new AtomicLong();
        AtomicLong began = new AtomicLong();
        CountDownLatch ended = new CountDownLatch(1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(arguments[1])
                .map((key, value) -> KeyValue.pair(
                        new String(value, 0, 2, StandardCharsets.ISO_8859_1), value))
                .repartition(Repartitioned.<String, byte[]>as("words")
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.ByteArray()))
                .peek((key, value) -> {
                    began.compareAndSet(0, System.nanoTime());
                    if (counted.incrementAndGet() == records) {
                        ended.countDown();
                    }
                })
                .groupByKey()
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .to(arguments[2], org.apache.kafka.streams.kstream.Produced.with(
                        Serdes.String(), Serdes.Long()));
        configs.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        configs.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        KafkaStreams streams = new KafkaStreams(builder.build(), configs);
        streams.setUncaughtExceptionHandler(problem -> {
            problem.printStackTrace();
            System.exit(1);
            return null;
        });
        streams.start();
        ended.await();
        double seconds = (System.nanoTime() - began.get()) / 1e9;
        streams.close(Duration.ofSeconds(30));
        System.out.println(seconds);
        System.exit(0);
    }
}
