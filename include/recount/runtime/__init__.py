"""Parts that every process of Recount needs: errors, settings, times, log lines, files with secrets."""
