#!/bin/sh
# Makes a Java runtime at the given place, of a JDK: what a JRE has and what Spark asks for, without compiler and tools.
# docs/decisions/0039 says why.
set -eu
jlink --output "$1" --compress=2 --no-header-files --no-man-pages --add-modules java.se,jdk.charsets,jdk.crypto.ec,\
jdk.httpserver,jdk.incubator.vector,jdk.jcmd,jdk.jfr,jdk.localedata,jdk.management.agent,jdk.naming.dns,jdk.net,\
jdk.nio.mapmode,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs
# with an archive of its own classes a JVM starts sooner
"$1/bin/java" -Xshare:dump >/dev/null
