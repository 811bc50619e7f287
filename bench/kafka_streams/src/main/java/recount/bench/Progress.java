package recount.bench;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;

/** How far a topology has come: when its first record was processed, how many passed each tracked place, and where. */
final class Progress {
    private final Map<TopicPartition, AtomicLong> lastOffsets = new ConcurrentHashMap<>();
    private final Map<String, AtomicLong> passed = new ConcurrentHashMap<>();
    private final AtomicLong firstMs = new AtomicLong();

    /** A processor that hands every record on and counts it under {@code place}, with those of others of this name. */
    <V> FixedKeyProcessorSupplier<String, V, V> tracker(String place) {
        AtomicLong count = passed.computeIfAbsent(place, unknown -> new AtomicLong());
        return () -> new Tracker<>(count);
    }

    long firstMs() {
        return firstMs.get();
    }

    /** Whether {@code records} records have passed every tracked place. */
    boolean hasProcessed(long records) {
        return passed.values().stream().allMatch(count -> count.get() >= records);
    }

    /** Whether the offsets of everything processed are committed by the application {@code group}. */
    boolean isCommitted(Admin admin, String group) throws ExecutionException, InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        return lastOffsets.entrySet().stream().allMatch(last -> {
            OffsetAndMetadata offset = committed.get(last.getKey());
            return offset != null && offset.offset() > last.getValue().get();
        });
    }

    private final class Tracker<V> implements FixedKeyProcessor<String, V, V> {
        private final AtomicLong count;
        private FixedKeyProcessorContext<String, V> context;
        private AtomicLong lastOffset;

        private Tracker(AtomicLong count) {
            this.count = count;
        }

        @Override
        public void init(FixedKeyProcessorContext<String, V> context) {
            this.context = context;
        }

        @Override
        public void process(FixedKeyRecord<String, V> record) {
            var place = context.recordMetadata().orElseThrow();
            if (lastOffset == null) {
                // A task reads one partition of a topic, so both stay the same for its life.
                firstMs.compareAndSet(0, System.currentTimeMillis());
                var partition = new TopicPartition(place.topic(), place.partition());
                lastOffset = lastOffsets.computeIfAbsent(partition, unknown -> new AtomicLong());
            }
            lastOffset.lazySet(place.offset());
            count.incrementAndGet();
            context.forward(record);
        }
    }
}
