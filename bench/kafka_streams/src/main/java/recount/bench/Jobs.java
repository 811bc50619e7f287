package recount.bench;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.WindowStore;

/** The jobs of bench/jobs.py as Kafka Streams topologies. */
final class Jobs {
    private static final Duration SIZE = Duration.ofMinutes(5);
    private static final Serde<String> TEXT = Serdes.String();

    private Jobs() {}

    /** Adds {@code job} to {@code builder}: from {@code topic} to {@code output}, counted by {@code progress}. */
    static void build(StreamsBuilder builder, String job, Arguments arguments, String topic, String output, Progress progress) {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(SIZE, arguments.milliseconds("grace-ms"));
        KStream<String, Order> orders = builder
            .stream(topic, Consumed.with(TEXT, Serialization.json(Order.class)))
            .processValues(progress.tracker());
        KTable<Windowed<String>, Result> results = switch (job) {
            case "revenue-by-region" -> orders
                .map((user, order) -> KeyValue.pair(order.region == null ? "UNKNOWN" : order.region, order.amount))
                .repartition(Repartitioned.with(TEXT, Serdes.Double()).withName("by-region"))
                .processValues(progress.<Double>tracker())
                .groupByKey(Grouped.with(TEXT, Serdes.Double()))
                .windowedBy(windows)
                .aggregate(Result::new, (region, amount, result) -> result.add(amount), store());
            case "counts-per-user" -> orders
                .mapValues(order -> 1L)
                .groupByKey(Grouped.with(TEXT, Serdes.Long()))
                .windowedBy(windows)
                .aggregate(Result::new, (user, one, result) -> result.add(), store());
            default -> throw new IllegalArgumentException("no job " + job);
        };
        results
            .toStream()
            .map((window, result) -> KeyValue.pair(window.key(), result.of(window.window().start())))
            .to(output, Produced.with(TEXT, Serialization.json(Result.class)));
    }

    private static Materialized<String, Result, WindowStore<Bytes, byte[]>> store() {
        return Materialized.<String, Result, WindowStore<Bytes, byte[]>>as("results")
            .withKeySerde(TEXT)
            .withValueSerde(Serialization.aggregate());
    }
}
