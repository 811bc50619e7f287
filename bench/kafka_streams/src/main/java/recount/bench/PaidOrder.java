package recount.bench;

/** An order with its payment; before they meet, the order alone, as a store holds it. */
public final class PaidOrder {
    public String user_id;
    public double amount;
    public String method;

    static PaidOrder unpaid(Order order) {
        PaidOrder unpaid = new PaidOrder();
        unpaid.user_id = order.user_id;
        unpaid.amount = order.amount;
        return unpaid;
    }

    PaidOrder by(Payment payment) {
        PaidOrder paid = new PaidOrder();
        paid.user_id = user_id;
        paid.amount = amount;
        paid.method = payment.method;
        return paid;
    }
}
