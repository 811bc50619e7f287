package recount.bench;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.SessionStore;

/** The jobs of bench/jobs.py as Kafka Streams topologies: from {@code topic} to the topics that begin with {@code output}. */
final class Jobs {
    private static final Duration SIZE = Duration.ofMinutes(5);
    private static final String STORE = "results";
    private static final Serde<String> TEXT = Serdes.String();

    private final StreamsBuilder builder;
    private final Progress progress;
    private final Arguments arguments;
    private final Duration grace;
    private final String topic;
    private final String output;

    private Jobs(StreamsBuilder builder, Progress progress, Arguments arguments, String topic, String output) {
        this.builder = builder;
        this.progress = progress;
        this.arguments = arguments;
        this.grace = arguments.milliseconds("grace-ms");
        this.topic = topic;
        this.output = output;
    }

    /** Adds {@code job} to {@code builder}, counted by {@code progress}. */
    static void build(StreamsBuilder builder, String job, Arguments arguments, String topic, String output, Progress progress) {
        Jobs jobs = new Jobs(builder, progress, arguments, topic, output);
        switch (job) {
            case "revenue-by-region" -> jobs.revenueByRegion();
            case "counts-per-user" -> jobs.countsPerUser();
            case "sessions-per-user" -> jobs.sessionsPerUser();
            case "orders-with-payments" -> jobs.ordersWithPayments();
            case "routing-by-region" -> jobs.routingByRegion();
            default -> throw new IllegalArgumentException("no job " + job);
        }
    }

    private void revenueByRegion() {
        writeResults(orders()
            .map((user, order) -> KeyValue.pair(order.region == null ? "UNKNOWN" : order.region, order.amount))
            .repartition(Repartitioned.with(TEXT, Serdes.Double()).withName("by-region"))
            .processValues(progress.<Double>tracker("by-region"))
            .groupByKey(Grouped.with(TEXT, Serdes.Double()))
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, grace))
            .aggregate(Result::new, (region, amount, result) -> result.add(amount), store()));
    }

    private void countsPerUser() {
        writeResults(orders()
            .mapValues(order -> 1L)
            .groupByKey(Grouped.with(TEXT, Serdes.Long()))
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, grace))
            .aggregate(Result::new, (user, one, result) -> result.add(), store()));
    }

    private void sessionsPerUser() {
        Duration gap = arguments.milliseconds("session-gap-ms");
        // By default the store drops a session when it is due: when stream time leaps, before it was emitted.
        var store = Jobs.<SessionStore<Bytes, byte[]>>store().withRetention(gap.plus(grace).plusMinutes(5));
        writeResults(orders()
            .mapValues(order -> 1L)
            .groupByKey(Grouped.with(TEXT, Serdes.Long()))
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(gap, grace))
            .emitStrategy(EmitStrategy.onWindowClose())
            .aggregate(Result::new, (user, one, result) -> result.add(), (user, one, other) -> one.merge(other), store));
    }

    private void ordersWithPayments() {
        KStream<String, Payment> payments = read(topic + "-payments", Payment.class);
        orders()
            .mapValues(PaidOrder::unpaid)
            .join(
                payments,
                PaidOrder::by,
                JoinWindows
                    .ofTimeDifferenceAndGrace(arguments.milliseconds("paid-within-ms"), grace)
                    .before(Duration.ZERO),
                StreamJoined.with(TEXT, Serialization.json(PaidOrder.class), Serialization.json(Payment.class))
                    .withStoreName(STORE))
            .to(output, Produced.with(TEXT, Serialization.json(PaidOrder.class)));
    }

    private void routingByRegion() {
        orders()
            .map((user, order) -> KeyValue.pair(order.order_id, RoutedOrder.of(order)))
            .split()
            .branch(isFrom("EU"), to("-eu"))
            .branch(isFrom("US"), to("-us"))
            .defaultBranch(to("-rest"));
    }

    private KStream<String, Order> orders() {
        return read(topic, Order.class);
    }

    private <T> KStream<String, T> read(String name, Class<T> type) {
        return builder
            .stream(name, Consumed.with(TEXT, Serialization.json(type)))
            .processValues(progress.tracker("read"));
    }

    private void writeResults(KTable<Windowed<String>, Result> results) {
        results
            .toStream()
            .map((window, result) -> KeyValue.pair(window.key(), result.of(window.window().start())))
            .to(output, Produced.with(TEXT, Serialization.json(Result.class)));
    }

    private static <S extends StateStore> Materialized<String, Result, S> store() {
        return Materialized.<String, Result, S>as(STORE)
            .withKeySerde(TEXT)
            .withValueSerde(Serialization.aggregate());
    }

    private static Predicate<String, RoutedOrder> isFrom(String region) {
        return (id, order) -> region.equals(order.region);
    }

    private Branched<String, RoutedOrder> to(String ending) {
        return Branched.withConsumer(
            routed -> routed.to(output + ending, Produced.with(TEXT, Serialization.json(RoutedOrder.class))));
    }
}
