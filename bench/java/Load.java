import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Scanner;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Loads one HTTP server on this machine: keep-alive connections, one small GET, and little processor time of its own, so
 * that what is measured is the server.
 *
 * <p>Each line on standard input is one turn: port, requests a second, seconds, path. The requests are due at even
 * intervals, whatever the server does, and a latency counts from the moment the request was due (no coordinated
 * omission); with a rate of 0 each connection asks again as soon as it is answered. The answer is one line of numbers:
 * seconds taken, failures, then every latency in microseconds.
 */
final class Load {
  private static final int CONNECTIONS = 16;
  private static final String REQUEST =
      "GET %s HTTP/1.1\r\nHost: shop.example.com\r\n"
          + "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36\r\n"
          + "Accept: text/html,application/xhtml+xml\r\nAccept-Language: en-GB,en;q=0.7\r\nAccept-Encoding: gzip, br\r\n"
          + "Referer: https://shop.example.com/\r\n"
          + "Cookie: session=0123456789abcdef; visitor=0123456789abcdef01234567\r\n\r\n";

  /** One keep-alive connection and the request on it. */
  private static final class Connection {
    final SocketChannel channel;
    final ByteBuffer answer = ByteBuffer.allocateDirect(1 << 16);
    long due;

    Connection(int port) throws IOException {
      channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.configureBlocking(false);
    }

    void ask(byte[] request, ByteBuffer scratch, long dueAt) throws IOException {
      due = dueAt;
      answer.clear();
      scratch.clear();
      scratch.put(request).flip();
      while (scratch.hasRemaining()) channel.write(scratch);
    }

    /** Whether the answer is whole now. */
    boolean hear() throws IOException {
      if (channel.read(answer) < 0) throw new IOException("the server closed a connection");
      int end = answer.position();
      for (int at = 3; at < end; at++) {
        if (answer.get(at) == '\n' && answer.get(at - 2) == '\n') return end >= at + 1 + length(at);
      }
      return false;
    }

    boolean good() {
      return answer.get(9) == '2' && answer.get(10) == '0' && answer.get(11) == '0';
    }

    private int length(int headEnd) {
      byte[] head = new byte[headEnd];
      answer.get(0, head);
      String text = new String(head, StandardCharsets.ISO_8859_1).toLowerCase();
      int found = text.indexOf("content-length:");
      return found < 0 ? 0 : Integer.parseInt(text.substring(found + 15, text.indexOf('\r', found)).trim());
    }
  }

  private final byte[] request;
  private final ArrayBlockingQueue<Connection> free = new ArrayBlockingQueue<>(CONNECTIONS);
  private final Selector selector = Selector.open();
  private int[] took = new int[1 << 16];
  private int answered;
  private int failed;

  private Load(int port, String path) throws IOException {
    request = REQUEST.formatted(path).getBytes(StandardCharsets.ISO_8859_1);
    for (int made = 0; made < CONNECTIONS; made++) {
      Connection one = new Connection(port);
      one.channel.register(selector, SelectionKey.OP_READ, one);
      free.add(one);
    }
  }

  /** Asks at even intervals; another thread hears. */
  private void pace(long total, double rate, long began) {
    ByteBuffer scratch = ByteBuffer.allocateDirect(1 << 12);
    try {
      for (long number = 0; number < total; number++) {
        long due = began + (long) (number * 1e9 / rate);
        for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
          LockSupport.parkNanos(wait);
        }
        Connection one = free.poll(30, TimeUnit.SECONDS);
        if (one == null) throw new IOException("the server does not answer");
        one.ask(request, scratch, due);
      }
    } catch (IOException | InterruptedException problem) {
      System.err.println(problem);
      System.exit(1);
    }
  }

  private double open(double rate, double seconds) throws Exception {
    long total = (long) (rate * seconds);
    long began = System.nanoTime() + 1_000_000;
    Thread pacer = new Thread(() -> pace(total, rate, began));
    pacer.start();
    while (answered < total) hear(free::add);
    pacer.join();
    return (System.nanoTime() - began) / 1e9;
  }

  private double closed(double seconds) throws Exception {
    ByteBuffer scratch = ByteBuffer.allocateDirect(1 << 12);
    long began = System.nanoTime();
    long end = began + (long) (seconds * 1e9);
    int[] asked = {0};
    for (Connection one : free) {
      one.ask(request, scratch, System.nanoTime());
      asked[0]++;
    }
    while (answered < asked[0]) {
      hear(
          one -> {
            long now = System.nanoTime();
            if (now < end) {
              one.ask(request, scratch, now);
              asked[0]++;
            }
          });
    }
    return (System.nanoTime() - began) / 1e9;
  }

  private interface Next {
    void with(Connection one) throws IOException;
  }

  private void hear(Next next) throws IOException {
    selector.select(
        key -> {
          Connection one = (Connection) key.attachment();
          try {
            if (!one.hear()) return;
            if (answered == took.length) took = java.util.Arrays.copyOf(took, answered * 2);
            took[answered++] = (int) ((System.nanoTime() - one.due) / 1000);
            if (!one.good()) failed++;
            next.with(one);
          } catch (IOException problem) {
            throw new java.io.UncheckedIOException(problem);
          }
        },
        1000);
  }

  public static void main(String[] given) throws Exception {
    Scanner turns = new Scanner(System.in);
    while (turns.hasNextInt()) {
      int port = turns.nextInt();
      double rate = turns.nextDouble();
      double seconds = turns.nextDouble();
      Load load = new Load(port, turns.next());
      double spent = rate > 0 ? load.open(rate, seconds) : load.closed(seconds);
      StringBuilder line = new StringBuilder().append(spent).append(' ').append(load.failed);
      for (int at = 0; at < load.answered; at++) line.append(' ').append(load.took[at]);
      System.out.println(line);
      for (SelectionKey key : load.selector.keys()) key.channel().close();
      load.selector.close();
    }
  }
}
