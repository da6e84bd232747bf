import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The scenarios of ../scenarios.json with Java's kafka-clients. Prints a JSON line for each.
 *
 * <p>java Scenarios BOOTSTRAP PREFIX NAME...
 */
public final class Scenarios {
    interface Scenario {
        Map<String, Object> run(World world) throws Exception;
    }

    private static Map<String, Scenario> all() {
        Map<String, Scenario> all = new HashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            all.put("codec-" + codec, world -> Data.codec(world, codec));
        }
        all.put("nulls", Data::nulls);
        all.put("seek-offset", Data::seekOffset);
        all.put("seek-time", Data::seekTime);
        all.put("pause", Data::pause);
        all.put("idempotent", Data::idempotent);
        all.put("transaction", Data::transaction);
        all.put("list-offsets", Data::listOffsets);
        all.put("delete-records", Data::deleteRecords);
        all.put("commit-sync", Groups::commitSync);
        all.put("commit-async", Groups::commitAsync);
        all.put("pattern", Groups::pattern);
        all.put("expression", Groups::expression);
        all.put("rebalance", Groups::rebalance);
        all.put("static-member", Groups::staticMember);
        all.put("cooperative", Groups::cooperative);
        all.put("transaction-offsets", Groups::transactionOffsets);
        all.put("admin-groups", Groups::adminGroups);
        all.put("admin-topics", Refusals::adminTopics);
        all.put("error-unknown-topic", Refusals::unknownTopic);
        all.put("error-topic-exists", Refusals::topicExists);
        all.put("error-topic-name", Refusals::topicName);
        all.put("error-replication-factor", Refusals::replicationFactor);
        all.put("error-config", Refusals::config);
        all.put("error-fewer-partitions", Refusals::fewerPartitions);
        all.put("error-too-large", Refusals::tooLarge);
        all.put("error-out-of-range", Refusals::outOfRange);
        all.put("error-fenced", Refusals::fenced);
        all.put("error-illegal-generation", Refusals::illegalGeneration);
        all.put("error-unknown-member", Refusals::unknownMember);
        all.put("error-group-not-empty", Refusals::groupNotEmpty);
        all.put("rare-errors-topics", MoreRefusals::ofTopics);
        all.put("rare-errors-groups", MoreRefusals::ofGroups);
        all.put("rare-errors-producers", MoreRefusals::ofProducers);
        all.put("error-not-enough-replicas", Refusals::notEnoughReplicas);
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        World world = new World(arguments[0], arguments[1]);
        ObjectMapper json = new ObjectMapper();
        Map<String, Scenario> all = all();
        for (String name : List.of(arguments).subList(2, arguments.length)) {
            long began = System.currentTimeMillis();
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("scenario", name);
            try {
                line.put("outcome", all.get(name).run(world));
            } catch (Exception error) {
                line.put("failure", error + " " + List.of(error.getStackTrace()).subList(0, 3));
            }
            line.put("ms", System.currentTimeMillis() - began);
            System.out.println(json.writeValueAsString(line));
        }
        world.admin.close();
    }
}
