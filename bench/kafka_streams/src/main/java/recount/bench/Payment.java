package recount.bench;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;

/** A payment as it lies in the topic, as far as the jobs read it. */
@JsonIgnoreProperties(ignoreUnknown = true)
public final class Payment {
    public String method;
}
