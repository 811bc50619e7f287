package recount.bench;

import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;

/**
 * Runs one job and says on standard output, one JSON object a line, when it starts to measure and what it measured.
 *
 * <p>With {@code follow=true} it runs until it is killed. Otherwise it first runs the job on the warm-up topic, in the same
 * JVM, then on the real one, each to the end of its topic.
 */
public final class Contender {
    private final Arguments arguments;
    private final Admin admin;

    private Contender(Arguments arguments, Admin admin) {
        this.arguments = arguments;
        this.admin = admin;
    }

    public static void main(String[] pairs) throws Exception {
        Arguments arguments = new Arguments(pairs);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments.text("bootstrap")))) {
            Contender contender = new Contender(arguments, admin);
            if (arguments.has("follow")) {
                contender.follow();
                return;
            }
            contender.run("warm-up-", arguments.number("warm-up-records"));
            say("{\"event\": \"measuring\"}");
            contender.run("", arguments.number("records"));
        }
    }

    /** Runs the job over the topic named by {@code prefix + "topic"} to its end. */
    private void run(String prefix, long records) throws Exception {
        Progress progress = new Progress();
        String application = arguments.text(prefix + "application");
        try (KafkaStreams streams = started(prefix, progress)) {
            while (!progress.hasProcessed(records)) {
                requireRunning(streams);
                Thread.sleep(5);
            }
            while (!progress.isCommitted(admin, application)) {
                requireRunning(streams);
                Thread.sleep(5);
            }
            long lastMs = System.currentTimeMillis();
            say(String.format(Locale.ROOT,
                "{\"event\": \"%s\", \"first_ms\": %d, \"last_ms\": %d, \"dropped\": %.0f}",
                prefix.isEmpty() ? "measured" : "warm", progress.firstMs(), lastMs, dropped(streams)));
            streams.close(Duration.ofSeconds(30));
        }
    }

    private void follow() throws Exception {
        try (KafkaStreams streams = started("", new Progress())) {
            say("{\"event\": \"measuring\"}");
            while (true) {
                requireRunning(streams);
                Thread.sleep(100);
            }
        }
    }

    private KafkaStreams started(String prefix, Progress progress) {
        StreamsBuilder builder = new StreamsBuilder();
        String topic = arguments.text(prefix + "topic");
        Jobs.build(builder, arguments.text("job"), arguments, topic, arguments.text(prefix + "output"), progress);
        Properties properties = properties(arguments.text(prefix + "application"));
        Topology topology = builder.build(properties);
        KafkaStreams streams = new KafkaStreams(topology, properties);
        streams.start();
        return streams;
    }

    private Properties properties(String application) {
        Properties properties = new Properties();
        properties.put("application.id", application);
        properties.put("bootstrap.servers", arguments.text("bootstrap"));
        properties.put("processing.guarantee", arguments.text("guarantee"));
        properties.put("commit.interval.ms", arguments.text("commit-interval-ms"));
        properties.put("num.stream.threads", "2");
        properties.put("state.dir", arguments.text("state"));
        properties.put("replication.factor", "1");
        properties.put("auto.offset.reset", "earliest");
        properties.put("topology.optimization", "all");
        // The least a broker allows: after kill -9 the group waits so long for the dead member.
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "2000");
        // The orders are older than the wall clock: without this the broker deletes the changelog beneath the store.
        properties.put("windowstore.changelog.additional.retention.ms", Long.toString(Duration.ofDays(3650).toMillis()));
        // By default final results leave once a second at most, and only with a record: the last ones would never leave.
        properties.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 10L);
        if (arguments.has("keep-repartition")) {
            // So that the order in which records passed a repartition topic can be read from it afterwards.
            properties.put("repartition.purge.interval.ms", Long.toString(Duration.ofDays(1).toMillis()));
        }
        if (!arguments.has("follow")) {
            properties.putAll(CATCH_UP);
        }
        return properties;
    }

    /** Client settings for throughput; the defaults, which are made for latency, were slower. */
    private static final Map<String, String> CATCH_UP = Map.of(
        "producer.batch.size", "262144",
        "producer.compression.type", "lz4",
        "consumer.max.poll.records", "10000",
        "consumer.fetch.min.bytes", "262144",
        "consumer.fetch.max.wait.ms", "50",
        "consumer.max.partition.fetch.bytes", "4194304",
        "buffered.records.per.partition", "10000");

    private static double dropped(KafkaStreams streams) {
        return streams.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("dropped-records-total"))
            .mapToDouble(metric -> ((Number) metric.metricValue()).doubleValue())
            .sum();
    }

    private static void requireRunning(KafkaStreams streams) {
        if (streams.state().hasCompletedShutdown()) {
            throw new IllegalStateException("Kafka Streams has stopped: " + streams.state());
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
