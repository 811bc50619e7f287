package recount.bench;

/** What is left of an order in the topic of its region. */
public final class RoutedOrder {
    public String region;
    public double amount;

    static RoutedOrder of(Order order) {
        RoutedOrder routed = new RoutedOrder();
        routed.region = order.region;
        routed.amount = order.amount;
        return routed;
    }
}
