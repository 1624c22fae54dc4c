package nightjar;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Purpose: the operator of a real-time query. It passes a task's Kafka records to the engine process over a Unix
 * socket, and the engine's records on to the sink, while the task's input waits.
 *
 * How it works: the task's thread reads what comes back. The feeder pulls the input, whose iterator blocks until a
 * record comes, into columns; the flusher writes whatever the feeder has collected since its last write, at most once
 * a millisecond, so that a frame has one record at low rates and many at high ones. The frames are described in
 * streaming/real_time/frames.py.
 *
 * What it does not do: understand records. If the engine ends, the task fails, and with it the query.
 *
 * Raw types: this file is compiled by the Janino that pyspark has, which makes no bridge methods.
 */
public final class EngineBridge implements MapPartitionsFunction {
    private static final int MOST_WAITING = 4 << 20; // bytes
    private static final int FRAME_NANOS = 1000000;
    private static final String ENDED = "the engine process has ended; its log has the cause";
    private final String path;
    private final boolean hasKeys;
    private final boolean hasHeaders;

    /** path: of the engine's socket. hasKeys, hasHeaders: whether they are among the columns of its input. */
    public EngineBridge(String path, boolean hasKeys, boolean hasHeaders) {
        this.path = path;
        this.hasKeys = hasKeys;
        this.hasHeaders = hasHeaders;
    }

    /**
     * Rows of topic, partition, offset, arrival (us), value, sent_at (us), key and headers (if there are) to rows of
     * topic, key, value, headers.
     */
    public Iterator call(Iterator records) throws Exception {
        TaskContext context = TaskContext.get();
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            channel.connect(UnixDomainSocketAddress.of(path));
        } catch (IOException lost) {
            channel.close();
            throw new IOException(ENDED, lost);
        }
        ByteBuffer hello = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
        hello.putLong(Long.parseLong(context.getLocalProperty("streaming.sql.batchId")));
        hello.putInt(context.numPartitions()).putInt(context.attemptNumber());
        hello.putInt(hasKeys ? 1 : 0).putInt(hasHeaders ? 1 : 0).flip();
        writeAll(channel, hello);
        Feeder feeder = new Feeder(records, context, hasKeys, hasHeaders);
        // registered after the input's own, so it runs before that closes the consumer, which is for one thread alone
        context.addTaskCompletionListener(new End(feeder, channel));
        feeder.start();
        new Flusher(feeder, channel).start();
        return new Replies(channel, feeder);
    }

    static void writeAll(SocketChannel channel, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }

    /** Ends the feeder with its task, which may be stopped while the feeder waits for records. */
    static final class End implements TaskCompletionListener {
        private final Feeder feeder;
        private final SocketChannel channel;

        End(Feeder feeder, SocketChannel channel) {
            this.feeder = feeder;
            this.channel = channel;
        }

        public void onTaskCompletion(TaskContext context) {
            boolean wasInterrupted = Thread.interrupted(); // as a stopped task's thread is: it could not wait
            try {
                channel.close();
                feeder.interrupt();
                feeder.join();
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            } finally {
                if (wasInterrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }

    /** A growing buffer of little-endian values. */
    static final class Column {
        private ByteBuffer bytes = ByteBuffer.allocate(1 << 12).order(ByteOrder.LITTLE_ENDIAN);

        ByteBuffer room(int more) {
            if (bytes.remaining() < more) {
                int needed = bytes.position() + more;
                ByteBuffer larger = ByteBuffer.allocate(Math.max(2 * bytes.capacity(), needed));
                larger.order(ByteOrder.LITTLE_ENDIAN);
                bytes.flip();
                larger.put(bytes);
                bytes = larger;
            }
            return bytes;
        }

        int size() {
            return bytes.position();
        }

        void moveTo(ByteBuffer frame) {
            bytes.flip();
            frame.put(bytes);
            bytes.clear();
        }
    }

    /** Pulls the task's input into columns. */
    static final class Feeder extends Thread {
        private final Iterator records;
        private final TaskContext context;
        private final Column offsets = new Column();
        private final Column arrivals = new Column();
        private final Column sentAt = new Column();
        private final Column lengths = new Column();
        private final Column values = new Column();
        private final Column beside = new Column();
        private final boolean hasKeys;
        private final boolean hasHeaders;
        private byte[] topic = new byte[0];
        private int partition;
        private int count;
        private boolean done;
        private Throwable failure;

        Feeder(Iterator records, TaskContext context, boolean hasKeys, boolean hasHeaders) {
            super("nightjar feeder");
            this.hasKeys = hasKeys;
            this.hasHeaders = hasHeaders;
            this.records = records;
            this.context = context;
            setDaemon(true);
        }

        public void run() {
            try {
                // the source reports where it ended by the task's context
                org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
                while (records.hasNext()) {
                    put((Row) records.next());
                }
            } catch (Throwable thrown) {
                fail(thrown);
            }
            synchronized (this) {
                done = true;
                notifyAll();
            }
        }

        private void put(Row row) throws InterruptedException, IOException {
            byte[] value = row.isNullAt(4) ? null : (byte[]) row.get(4);
            synchronized (this) {
                while (values.size() + offsets.size() + beside.size() > MOST_WAITING && failure == null) {
                    wait(); // the engine is behind: no more is read from Kafka
                }
                check();
                if (topic.length == 0) { // a task reads one partition of one topic
                    topic = row.getString(0).getBytes(StandardCharsets.UTF_8);
                    partition = row.getInt(1);
                }
                offsets.room(8).putLong(row.getLong(2));
                arrivals.room(8).putLong(row.getLong(3));
                sentAt.room(8).putLong(row.isNullAt(5) ? Long.MIN_VALUE : row.getLong(5));
                lengths.room(4).putInt(value == null ? -1 : value.length);
                if (value != null) {
                    values.room(value.length).put(value);
                }
                if (hasKeys) {
                    putBeside((byte[]) row.get(6));
                }
                if (hasHeaders) {
                    putHeaders(row, hasKeys ? 7 : 6);
                }
                count++;
                notifyAll();
            }
        }

        private void putHeaders(Row row, int column) {
            java.util.List headers = row.isNullAt(column) ? new java.util.ArrayList() : row.getList(column);
            beside.room(4).putInt(headers.size());
            for (int at = 0; at < headers.size(); at++) {
                Row header = (Row) headers.get(at);
                putBeside(header.getString(0).getBytes(StandardCharsets.UTF_8));
                putBeside((byte[]) header.get(1));
            }
        }

        private void putBeside(byte[] bytes) {
            beside.room(4).putInt(bytes == null ? -1 : bytes.length);
            if (bytes != null) {
                beside.room(bytes.length).put(bytes);
            }
        }

        /** A frame of what has come since the last call; one without records after the last. */
        synchronized ByteBuffer take() throws InterruptedException {
            while (count == 0 && !done) {
                wait();
            }
            int head = 4 + 4 + 4 + 2 + topic.length;
            int columns = offsets.size() + arrivals.size() + sentAt.size() + lengths.size() + values.size()
                + beside.size();
            ByteBuffer frame = ByteBuffer.allocate(4 + head + columns).order(ByteOrder.LITTLE_ENDIAN);
            frame.putInt(head + columns).putInt(count).putInt(partition).putInt(values.size());
            frame.putShort((short) topic.length).put(topic);
            offsets.moveTo(frame);
            arrivals.moveTo(frame);
            sentAt.moveTo(frame);
            lengths.moveTo(frame);
            values.moveTo(frame);
            beside.moveTo(frame);
            count = 0;
            notifyAll();
            frame.flip();
            return frame;
        }

        synchronized void fail(Throwable thrown) {
            failure = failure == null ? thrown : failure;
            notifyAll();
        }

        synchronized Throwable failed() {
            return failure;
        }

        void check() throws IOException {
            if (failed() != null) {
                throw new IOException("the input of the task failed", failed());
            }
        }
    }

    /** Writes what the feeder collects. */
    static final class Flusher extends Thread {
        private final Feeder feeder;
        private final SocketChannel channel;

        Flusher(Feeder feeder, SocketChannel channel) {
            super("nightjar flusher");
            this.feeder = feeder;
            this.channel = channel;
            setDaemon(true);
        }

        public void run() {
            try {
                boolean last = false;
                while (!last) {
                    ByteBuffer frame = feeder.take();
                    last = frame.getInt(4) == 0;
                    if (last) {
                        feeder.check(); // a task whose input failed has not ended its part
                    }
                    writeAll(channel, frame);
                    // a frame costs the engine as much as many records, which wait for their group anyway
                    if (!last) {
                        LockSupport.parkNanos(FRAME_NANOS);
                    }
                }
            } catch (Throwable thrown) {
                feeder.fail(thrown);
                try {
                    channel.close();
                } catch (IOException closing) {
                    // it is closed
                }
            }
        }
    }

    /** The engine's records, as rows of Spark's Kafka sink. */
    static final class Replies implements Iterator {
        private final SocketChannel channel;
        private final DataInputStream in;
        private final Feeder feeder;
        private Row next;
        private boolean ended;

        Replies(SocketChannel channel, Feeder feeder) {
            this.channel = channel;
            this.in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel), 1 << 16));
            this.feeder = feeder;
        }

        public boolean hasNext() {
            if (next == null && !ended) {
                try {
                    read();
                } catch (Exception lost) {
                    Throwable failed = feeder.failed();
                    throw failed != null
                        ? new RuntimeException("the input of the task failed: " + failed, failed)
                        : new RuntimeException(ENDED, lost);
                }
            }
            return next != null;
        }

        private void read() throws Exception {
            int size = in.readInt();
            if (size == 0) {
                ended = true;
                feeder.join();
                feeder.check();
                return;
            }
            String topic = text(in.readInt());
            String key = text(in.readInt());
            String value = text(in.readInt());
            byte[] sentAt = bytes(in.readInt());
            Object headers = sentAt == null ? null : new Object[] {
                RowFactory.create(new Object[] {"sent_at", sentAt})
            };
            next = RowFactory.create(new Object[] {topic, key, value, headers});
        }

        private byte[] bytes(int length) throws IOException {
            if (length < 0) {
                return null;
            }
            byte[] read = new byte[length];
            in.readFully(read);
            return read;
        }

        private String text(int length) throws IOException {
            byte[] read = bytes(length);
            return read == null ? null : new String(read, StandardCharsets.UTF_8);
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Row row = next;
            next = null;
            return row;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
