import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The cases of ../logins/cases.py with Java's kafka-clients. Prints a JSON line for each.
 *
 * <p>java Logins FILE
 */
public final class Logins {
    private static final Duration DEADLINE = Duration.ofSeconds(10);
    private static final String MODULES = "org.apache.kafka.common.security.";

    private Logins() {}

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        var form = new TypeReference<List<Map<String, String>>>() {};
        for (Map<String, String> question : json.readValue(new File(arguments[0]), form)) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("case", question.get("name"));
            try {
                line.put("outcome", use(question));
            } catch (Exception error) {
                line.put("outcome", said(error));
            }
            System.out.println(json.writeValueAsString(line));
        }
    }

    private static String use(Map<String, String> question) throws Exception {
        Map<String, Object> own = settings(question);
        own.put("max.block.ms", DEADLINE.toMillis());
        own.put("delivery.timeout.ms", (int) DEADLINE.toMillis());
        own.put("request.timeout.ms", 5_000);
        own.put("linger.ms", 0);
        try (var producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(question.get("topic"), "java")).get();
        }
        own = settings(question);
        own.put("group.id", question.get("group"));
        own.put("auto.offset.reset", "earliest");
        var deserializer = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(own, deserializer, deserializer)) {
            consumer.subscribe(List.of(question.get("topic")));
            return consumer.poll(DEADLINE).isEmpty() ? "nothing in time" : "read";
        }
    }

    private static Map<String, Object> settings(Map<String, String> question) {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", question.get("bootstrap"));
        found.put("security.protocol", question.get("protocol"));
        found.put("ssl.truststore.type", "PEM");
        found.put("ssl.truststore.location", question.get("ca"));
        if (!question.get("certificate").isEmpty()) {
            found.put("ssl.keystore.type", "PEM");
            found.put("ssl.keystore.location", question.get("certificate"));
        }
        String mechanism = question.get("mechanism");
        if (!question.get("token").isEmpty()) {
            found.put("sasl.oauthbearer.token.endpoint.url", "file://" + question.get("token"));
            found.put("sasl.login.callback.handler.class",
                MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler");
            found.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required;");
        } else if (!mechanism.isEmpty()) {
            String module = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
            found.put("sasl.jaas.config", String.format(
                "%s%sLoginModule required username=\"%s\" password=\"%s\";",
                MODULES, module, question.get("user"), question.get("password")));
        }
        if (!mechanism.isEmpty()) {
            found.put("sasl.mechanism", mechanism);
        }
        return found;
    }

    /** The client's exception, and what it says. */
    private static Map<String, String> said(Exception error) {
        Throwable found = error instanceof ExecutionException ? error.getCause() : error;
        return Map.of(
            "error", found.getClass().getSimpleName(),
            "says", String.valueOf(found.getMessage()));
    }
}
