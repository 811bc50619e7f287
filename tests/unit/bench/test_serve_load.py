from __future__ import annotations

import pytest
from bench.serve_load import read, require_same

from recount.core.errors import Terminal

_PRINTED = """\
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.00s   100.00ms   2.00s    70.00%
  Latency Distribution
     50%   12.50ms
     75%  250.00us
     90%    1.02s{blank}
     99%    1.20m{blank}
  123 requests in 10.00s, 1.00MB read
{failures}Requests/sec:     12.30
Transfer/sec:      1.00MB
"""
_FAILURES = "  Socket errors: connect 0, read 1, write 0, timeout 2\n  Non-2xx or 3xx responses: 4\n"


@pytest.mark.parametrize(("failures", "failed"), [("", 0), (_FAILURES, 7)])
def test_what_wrk_prints_is_read_in_milliseconds(failures: str, failed: int) -> None:
    found = read(_PRINTED.format(failures=failures, blank=" "))
    assert found == {"per_second": 12.3, "p50_ms": 12.5, "p99_ms": 72_000.0, "failed": failed}


def test_an_answer_with_other_rows_after_the_load_is_refused_and_one_that_is_older_is_not() -> None:
    before = {"rows": [{"user_id": "u1", "orders": 3}], "asked_ms": 1}
    require_same(before, {**before, "asked_ms": 2}, "rows")
    require_same({"streams": [{"age_ms": 5}]}, {"streams": [{"age_ms": 900}]}, "streams")
    with pytest.raises(Terminal, match="another answer after the load"):
        require_same(before, {**before, "rows": []}, "rows")
