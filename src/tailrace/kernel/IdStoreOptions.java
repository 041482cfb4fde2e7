package tailrace.kernel;

import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.CompressionType;
import org.rocksdb.IndexType;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.WriteBufferManager;

/**
 * How the stores of seen ids are set up: one bound for the memory of all of them, half of it at most for what is not on disk yet, and filters
 * so that a new id costs no read.
 */
final class IdStoreOptions {
  private static final long MEMORY = 128L << 20;

  private static Options options;

  private IdStoreOptions() {}

  static synchronized Options get() {
    if (options != null) return options;
    RocksDB.loadLibrary();
    LRUCache cache = new LRUCache(MEMORY);
    // Filters and indexes in small parts: as one block each they outgrow a shard of the cache, and are then read anew for every question.
    BlockBasedTableConfig table = new BlockBasedTableConfig()
        .setBlockCache(cache)
        .setIndexType(IndexType.kTwoLevelIndexSearch)
        .setPartitionFilters(true)
        .setMetadataBlockSize(16 << 10)
        .setCacheIndexAndFilterBlocks(true)
        .setPinTopLevelIndexAndFilter(true)
        .setFilterPolicy(new BloomFilter(10, false))
        .setFormatVersion(5);
    options = new Options()
        .setCreateIfMissing(true)
        .setTableFormatConfig(table)
        .setWriteBufferSize(16L << 20)
        .setWriteBufferManager(new WriteBufferManager(MEMORY / 2, cache))
        .setMemtablePrefixBloomSizeRatio(0.1)
        .setMemtableWholeKeyFiltering(true)
        .setCompressionType(CompressionType.LZ4_COMPRESSION)
        .setMaxOpenFiles(256)
        .setMaxTotalWalSize(64L << 20)
        .setInfoLogLevel(InfoLogLevel.ERROR_LEVEL)
        .setKeepLogFileNum(1)
        .setStatsDumpPeriodSec(0);
    return options;
  }
}
