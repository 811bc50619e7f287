package recount.bench;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/** The command line: {@code name=value} pairs, as bench/contenders.py writes them. */
final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(String[] pairs) {
        for (String pair : pairs) {
            int equals = pair.indexOf('=');
            values.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing argument " + name + "=");
        }
        return value;
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    Duration milliseconds(String name) {
        return Duration.ofMillis(number(name));
    }

    boolean has(String name) {
        return values.containsKey(name);
    }
}
