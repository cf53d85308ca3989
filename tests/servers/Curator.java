/*
 * Curator.java - Apache Curator's recipes on a string: it does what it
 * is told on standard input, a command a line, and answers each with one line.
 *
 *	acquire PATH		-> held NODE CZXID	(waits as long as it takes)
 *	try PATH MS		-> held NODE CZXID, or busy
 *	revocable PATH		-> held NODE CZXID, and released when somebody asks for it
 *	release PATH		-> released
 *	revoke NODE		-> asked
 *	turns PATH LOG STOP	-> N turns; see there
 *
 * These are InterProcessMutex.  The others: RECIPE is read or write (InterProcessReadWriteLock),
 * or the number of leases of an InterProcessSemaphoreV2.
 *
 *	take RECIPE PATH MS	-> held, or busy
 *	give RECIPE PATH	-> released
 *
 * The tests compile and start it: java Curator HOST:PORT.
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryOneTime;

public class Curator {
	/* Only subclasses may ask for the name of the node. */
	static class Mutex extends InterProcessMutex {
		Mutex(CuratorFramework client, String path) {
			super(client, path);
		}

		String node() {
			return getLockPath();
		}
	}

	private final CuratorFramework client;
	private final Map<String, Mutex> held = new HashMap<>();
	private final Map<String, String> revocable = new ConcurrentHashMap<>();
	private final Map<String, AutoCloseable> taken = new HashMap<>();

	Curator(String server) {
		client = CuratorFrameworkFactory.newClient(server, 10000, 10000, new RetryOneTime(100));
		client.start();
	}

	private long czxid(Mutex mutex) throws Exception {
		return client.checkExists().forPath(mutex.node()).getCzxid();
	}

	private String acquire(String path, long ms) throws Exception {
		return acquire(new Mutex(client, path), path, ms);
	}

	private String acquire(Mutex mutex, String path, long ms) throws Exception {
		if (!mutex.acquire(ms, TimeUnit.MILLISECONDS))
			return "busy";
		held.put(path, mutex);
		return "held " + mutex.node() + " " + czxid(mutex);
	}

	private String acquireRevocably(String path) throws Exception {
		Mutex mutex = new Mutex(client, path);

		mutex.makeRevocable(m -> new Thread(() -> giveUp(path)).start());
		String answer = acquire(mutex, path, Integer.MAX_VALUE);
		revocable.put(path, answer.split(" ")[1]);
		return answer;
	}

	/* Not by release(), which is for the thread that has it. */
	private void giveUp(String path) {
		try {
			client.delete().forPath(revocable.get(path));
		} catch (Exception e) {
			System.err.println(e);
		}
	}

	private String release(String path) throws Exception {
		held.remove(path).release();
		return "released";
	}

	private String revoke(String node) throws Exception {
		Revoker.attemptRevoke(client, node);
		return "asked";
	}

	/* Null: busy. */
	private AutoCloseable takeMutex(InterProcessMutex mutex, long ms) throws Exception {
		return mutex.acquire(ms, TimeUnit.MILLISECONDS) ? mutex::release : null;
	}

	private AutoCloseable takeRecipe(String recipe, String path, long ms) throws Exception {
		switch (recipe) {
		case "read":
			return takeMutex(new InterProcessReadWriteLock(client, path).readLock(), ms);
		case "write":
			return takeMutex(new InterProcessReadWriteLock(client, path).writeLock(), ms);
		default:
			Lease lease = new InterProcessSemaphoreV2(client, path, Integer.parseInt(recipe)).acquire(ms,
			    TimeUnit.MILLISECONDS);
			return lease == null ? null : lease::close;
		}
	}

	private String take(String recipe, String path, long ms) throws Exception {
		AutoCloseable hold = takeRecipe(recipe, path, ms);

		if (hold == null)
			return "busy";
		taken.put(recipe + path, hold);
		return "held";
	}

	private String give(String recipe, String path) throws Exception {
		taken.remove(recipe + path).close();
		return "released";
	}

	private static void append(Path log, String line) throws IOException {
		Files.writeString(log, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
	}

	/*
	 * Takes the lock again and again until STOP exists.  Each time the directory
	 * LOG.d is made and removed: it is there already if another holds the lock
	 * too.  The lock is kept until somebody else waits for it, so that the turns
	 * alternate.
	 */
	private String turns(String path, Path log, Path stop) throws Exception {
		Path mark = Path.of(log + ".d");
		int n = 0;

		for (; !Files.exists(stop); n++) {
			Mutex mutex = new Mutex(client, path);

			mutex.acquire();
			try {
				Files.createDirectory(mark);
			} catch (FileAlreadyExistsException e) {
				append(log, "overlap");
			}
			append(log, "curator " + czxid(mutex));
			while (client.getChildren().forPath(path).size() < 2 && !Files.exists(stop))
				Thread.sleep(2);
			Files.deleteIfExists(mark);
			mutex.release();
		}
		return n + " turns";
	}

	private String obey(String[] words) throws Exception {
		switch (words[0]) {
		case "acquire":
			return acquire(words[1], Integer.MAX_VALUE);
		case "revocable":
			return acquireRevocably(words[1]);
		case "try":
			return acquire(words[1], Long.parseLong(words[2]));
		case "release":
			return release(words[1]);
		case "revoke":
			return revoke(words[1]);
		case "take":
			return take(words[1], words[2], Long.parseLong(words[3]));
		case "give":
			return give(words[1], words[2]);
		case "turns":
			return turns(words[1], Path.of(words[2]), Path.of(words[3]));
		default:
			return "error: no such command";
		}
	}

	public static void main(String[] args) throws Exception {
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		Curator curator = new Curator(args[0]);
		String line;

		while ((line = in.readLine()) != null) {
			String answer;

			try {
				answer = curator.obey(line.split(" "));
			} catch (Exception e) {
				answer = "error: " + e;
			}
			System.out.println(answer);
			System.out.flush();
		}
		curator.client.close();
	}
}
