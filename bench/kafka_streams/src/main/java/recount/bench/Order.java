package recount.bench;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;

/** An order as it lies in the topic, as far as the jobs read it. */
@JsonIgnoreProperties(ignoreUnknown = true)
public final class Order {
    public String order_id;
    public String user_id;
    public String region;
    public double amount;
}
