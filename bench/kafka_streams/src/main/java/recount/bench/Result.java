package recount.bench;

import com.fasterxml.jackson.annotation.JsonInclude;

/** One result of a key and window; also the aggregate itself, so that a store holds what is written out. */
@JsonInclude(JsonInclude.Include.NON_NULL)
public final class Result {
    public long window_start;
    public long orders;
    public Double revenue;

    Result add(double amount) {
        orders++;
        revenue = (revenue == null ? 0 : revenue) + amount;
        return this;
    }

    Result add() {
        orders++;
        return this;
    }

    /** Of two sessions that a record joins. */
    Result merge(Result other) {
        orders += other.orders;
        return this;
    }

    Result of(long windowStart) {
        Result result = new Result();
        result.window_start = windowStart;
        result.orders = orders;
        result.revenue = revenue;
        return result;
    }
}
