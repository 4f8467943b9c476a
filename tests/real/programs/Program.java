import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A Java program with a large heap and several threads, which answers on a TCP port whether its state is as it
 * should be: blocks of memory with known contents, a map that threads add to, a scheduled task, a ring of threads that
 * pass numbers on, garbage all the time. Each request answers "ok STEP" or what differs.
 */
public final class Program {
	private static final int BLOCK = 1 << 18;
	private static final int BLOCKS = 2400;
	private static final int RING = 200;
	private static final List<byte[]> blocks = new ArrayList<>();
	private static final Map<Long, String> map = new ConcurrentHashMap<>();
	private static final AtomicLong[] counters = {new AtomicLong(), new AtomicLong(), new AtomicLong(), new AtomicLong()};
	private static volatile String complaint;

	public static void main(String[] arguments) throws Exception {
		for (int i = 0; i < BLOCKS; i++) {
			blocks.add(filled(i));
		}
		for (int i = 0; i < 2; i++) {
			final int number = i;
			Thread thread = new Thread(() -> work(number));
			thread.setDaemon(true);
			thread.start();
		}
		ScheduledExecutorService timer = Executors.newScheduledThreadPool(1);
		timer.scheduleAtFixedRate(() -> counters[2].incrementAndGet(), 0, 5, TimeUnit.MILLISECONDS);
		beginRing();
		serve(Integer.parseInt(arguments[0]));
	}

	private static byte[] filled(int seed) {
		byte[] block = new byte[BLOCK];
		int state = seed * 2654435 + 1;
		for (int i = 0; i < BLOCK; i++) {
			if (i % 64 == 0) {
				state = state * 1103515245 + 12345;
			}
			block[i] = (byte) (state >>> 16 + i % 8);
		}
		return block;
	}

	/** Adds to the map, takes away again, makes garbage, and checks a block each round. */
	private static void work(int number) {
		for (long round = 0;; round++) {
			long key = round * 2 + number;
			map.put(key, "value " + key);
			if (round >= 100000 && !("value " + (key - 200000)).equals(map.remove(key - 200000))) {
				complaint = "the map lost " + (key - 200000);
			}
			if (round % 1000 == 0) {
				int block = (int) (round / 1000 % BLOCKS);
				if (!java.util.Arrays.equals(blocks.get(block), filled(block))) {
					complaint = "block " + block + " differs";
				}
			}
			counters[number].incrementAndGet();
		}
	}

	/** Each thread adds one to the numbers that go by, so that they come back to the first one higher by all of them. */
	private static void beginRing() throws InterruptedException {
		List<BlockingQueue<Long>> queues = new ArrayList<>();
		for (int i = 0; i < RING; i++) {
			queues.add(new ArrayBlockingQueue<>(4));
		}
		for (int i = 0; i < RING; i++) {
			final int number = i;
			Thread thread = new Thread(() -> passOn(number, queues.get(number), queues.get((number + 1) % RING)));
			thread.setDaemon(true);
			thread.start();
		}
		queues.get(0).put(0L);
	}

	private static void passOn(int number, BlockingQueue<Long> from, BlockingQueue<Long> to) {
		try {
			for (long round = 0;; round++) {
				long value = from.take();
				if (value != round * RING + number) {
					complaint = "thread " + number + " of the ring got " + value + " in round " + round;
				}
				if (number == 0) {
					counters[3].incrementAndGet();
				}
				to.put(value + 1);
			}
		} catch (InterruptedException e) {
			complaint = "a thread of the ring was interrupted";
		}
	}

	private static String check(int step) throws InterruptedException {
		long[] before = new long[counters.length];
		for (int i = 0; i < counters.length; i++) {
			before[i] = counters[i].get();
		}
		for (int i = 0; i < counters.length; i++) {
			for (int waited = 0; counters[i].get() == before[i]; waited++) {
				if (waited > 4000) {
					return "thread " + i + " stands still";
				}
				Thread.sleep(5);
			}
		}
		for (int i = step % 4; i < BLOCKS; i += 4) {
			if (!java.util.Arrays.equals(blocks.get(i), filled(i))) {
				return "block " + i + " differs";
			}
		}
		System.gc();
		return complaint != null ? complaint : "ok " + step;
	}

	private static void serve(int port) throws IOException, InterruptedException {
		ServerSocket server = new ServerSocket(port, 5, InetAddress.getByName("127.0.0.1"));
		for (int step = 0;; step++) {
			try (Socket socket = server.accept()) {
				socket.getInputStream().read();
				socket.getOutputStream().write((check(step) + "\n").getBytes());
			}
		}
	}
}
