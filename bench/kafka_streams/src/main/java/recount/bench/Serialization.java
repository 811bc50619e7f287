package recount.bench;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** JSON for the topics, and the plain bytes a store is best served with. */
final class Serialization {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Serialization() {}

    static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = MAPPER.readerFor(type);
        ObjectWriter writer = MAPPER.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return bytes == null ? null : reader.readValue(bytes);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }

    /** 16 bytes a result; the window is in the store's key. */
    static Serde<Result> aggregate() {
        return Serdes.serdeFrom(
            (topic, result) -> {
                if (result == null) {
                    return null;
                }
                double revenue = result.revenue == null ? Double.NaN : result.revenue;
                return ByteBuffer.allocate(16).putLong(result.orders).putDouble(revenue).array();
            },
            (topic, bytes) -> {
                if (bytes == null) {
                    return null;
                }
                ByteBuffer buffer = ByteBuffer.wrap(bytes);
                Result result = new Result();
                result.orders = buffer.getLong();
                double revenue = buffer.getDouble();
                result.revenue = Double.isNaN(revenue) ? null : revenue;
                return result;
            });
    }
}
