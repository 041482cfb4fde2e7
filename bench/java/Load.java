import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Scanner;

/**
 * Loads one HTTP server on this machine: keep-alive connections, one small GET, one thread that never sleeps. A sleeping
 * client has to be woken by the server's write to the socket, which costs the server more than a small answer does, and
 * the more often the slower the server is: the client's sleep would be measured, not the server.
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
  private final ArrayDeque<Connection> free = new ArrayDeque<>(CONNECTIONS);
  private final Selector selector = Selector.open();
  private int[] took = new int[1 << 16];
  private int answered;
  private int failed;
  private long heard = System.nanoTime();

  private Load(int port, String path) throws IOException {
    request = REQUEST.formatted(path).getBytes(StandardCharsets.ISO_8859_1);
    for (int made = 0; made < CONNECTIONS; made++) {
      Connection one = new Connection(port);
      one.channel.register(selector, SelectionKey.OP_READ, one);
      free.add(one);
    }
  }

  /** Asks at even intervals, as far as connections are free. */
  private double open(double rate, double seconds) throws IOException {
    ByteBuffer scratch = ByteBuffer.allocateDirect(1 << 12);
    long total = (long) (rate * seconds);
    long began = System.nanoTime();
    long asked = 0;
    while (answered < total) {
      long due = began + (long) (asked * 1e9 / rate);
      if (asked < total && !free.isEmpty() && System.nanoTime() >= due) {
        free.poll().ask(request, scratch, due);
        asked++;
      } else {
        hear(free::add);
      }
    }
    return (System.nanoTime() - began) / 1e9;
  }

  private double closed(double seconds) throws IOException {
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
    int before = answered;
    selector.selectNow(
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
        });
    if (answered > before) heard = System.nanoTime();
    else if (System.nanoTime() - heard > 30_000_000_000L) throw new IOException("the server does not answer");
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
