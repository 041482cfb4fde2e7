package tailrace.kernel;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Fault points: places where a test can end the process as a power cut would. TAILRACE_FAULT="kafka-before-commit:3" does so the third
 * time this point is reached. Points here: kafka-before-send, kafka-before-commit, kafka-after-commit, postgres-after-copy, between-sinks.
 */
final class Faults {
  private static final String POINT;
  private static final AtomicInteger LEFT;

  static {
    String wish = System.getenv().getOrDefault("TAILRACE_FAULT", "");
    int colon = wish.indexOf(':');
    POINT = colon < 0 ? wish : wish.substring(0, colon);
    LEFT = new AtomicInteger(colon < 0 ? 1 : Integer.parseInt(wish.substring(colon + 1)));
  }

  private Faults() {}

  static void reached(String point) {
    if (!point.equals(POINT) || LEFT.decrementAndGet() != 0) return;
    // The driver is the Python process above this one: it must not live on and tidy up.
    ProcessHandle.current().parent().filter(parent -> parent.info().command().orElse("").contains("python")).ifPresent(ProcessHandle::destroyForcibly);
    Runtime.getRuntime().halt(137);
  }
}
