import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Members of a share group that accept what they get, a thread each.
 *
 * drain BOOTSTRAP TOPIC MEMBERS RECORDS: prints the seconds from the first record that a member got
 * to the last one. The wait for the first assignment is not in it.
 * latency BOOTSTRAP TOPIC MEMBERS RECORDS: produces records one by one to members that wait, and
 * prints the milliseconds from send() to poll() of each.
 */
public final class ShareLoad {
    private static final long PATIENCE_MS = 180_000;

    private final String bootstrap;
    private final String topic;
    private final long records;
    private final AtomicLong seen = new AtomicLong();
    private final AtomicLong first = new AtomicLong(Long.MAX_VALUE);
    private final AtomicLong last = new AtomicLong();
    private final ConcurrentLinkedQueue<Long> latencies = new ConcurrentLinkedQueue<>();
    private volatile boolean isEnding;

    private ShareLoad(String bootstrap, String topic, long records) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.records = records;
    }

    public static void main(String[] arguments) throws Exception {
        long records = Long.parseLong(arguments[4]);
        ShareLoad load = new ShareLoad(arguments[1], arguments[2], records);
        load.beginAtTheStart();
        var members = new ArrayList<Thread>();
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            members.add(new Thread(load::member));
        }
        members.forEach(Thread::start);
        if (arguments[0].equals("drain")) {
            load.await(records);
            System.out.println((load.last.get() - load.first.get()) / 1e9);
        } else {
            load.produce();
        }
        load.isEnding = true;
        for (Thread member : members) {
            member.join();
        }
    }

    private Properties properties() {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("group.id", topic + "-group");
        return all;
    }

    private void beginAtTheStart() throws Exception {
        try (Admin admin = Admin.create(properties())) {
            var group = new ConfigResource(ConfigResource.Type.GROUP, topic + "-group");
            var change = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(change))).all().get();
        }
    }

    private void member() {
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(properties(), bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            while (!isEnding) {
                int count = 0;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    count++;
                    if (record.key() != null) {
                        latencies.add(System.nanoTime() - ByteBuffer.wrap(record.key()).getLong());
                    }
                }
                if (count > 0) {
                    long now = System.nanoTime();
                    first.accumulateAndGet(now, Math::min);
                    last.accumulateAndGet(now, Math::max);
                    seen.addAndGet(count);
                }
            }
        }
    }

    private void await(long count) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (seen.get() < count) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(seen.get() + " of " + count + " records came");
            }
            Thread.sleep(5);
        }
    }

    private void produce() throws Exception {
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(properties(), bytes, bytes)) {
            producer.send(new ProducerRecord<>(topic, null, new byte[100])).get();
            await(1);
            for (long number = 0; number < records; number++) {
                byte[] key = ByteBuffer.allocate(8).putLong(System.nanoTime()).array();
                producer.send(new ProducerRecord<>(topic, key, new byte[100])).get();
                Thread.sleep(2);
            }
            await(records + 1);
        }
        var sorted = new ArrayList<>(latencies);
        Collections.sort(sorted);
        sorted.forEach(nanoseconds -> System.out.println(nanoseconds / 1e6));
    }
}
