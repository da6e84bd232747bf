import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;

/**
 * An application of Kafka Streams: it counts the words of lines, and joins each word with a table of
 * languages. Arguments: bootstrap servers, prefix of the topics' names, then configs as
 * name=value. It prints its state's changes and each uncaught exception, and ends at the end of its
 * standard input.
 */
public final class Counting {
    public static void main(String[] arguments) throws Exception {
        Properties configs = new Properties();
        configs.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        String prefix = arguments[1];
        configs.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        configs.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        configs.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        for (String argument : Arrays.asList(arguments).subList(2, arguments.length)) {
            String[] pair = argument.split("=", 2);
            configs.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words =
                builder.<String, String>stream(prefix + "lines")
                        .flatMap((key, line) -> Arrays.stream(line.split(" "))
                                .map(word -> KeyValue.pair(word, word)).toList());
        KStream<String, String> byWord = words.repartition(
                org.apache.kafka.streams.kstream.Repartitioned.as("words"));
        byWord.groupByKey().count(Named.as("count"), Materialized.as("counts"))
                .toStream().mapValues(count -> Long.toString(count)).to(prefix + "counted");
        KTable<String, String> languages = builder.table(prefix + "languages");
        byWord.join(languages, (word, language) -> word + "/" + language)
                .to(prefix + "joined", Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(configs), configs);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(problem -> {
            System.out.println("uncaught " + problem);
            problem.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                    .StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException problem) {
                System.out.println("uncaught " + problem);
            }
            ended.countDown();
        });
        reader.setDaemon(true);
        reader.start();
        ended.await();
        streams.close(Duration.ofSeconds(30));
        System.exit(0);
    }
}
