package tailrace.kernel;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * This machine's files as Spark's checkpoints see them, by system calls alone.
 *
 * Hadoop without its native library starts a process for each permission (chmod) and four for each rename (readlink):
 * thirty a batch, most of a small batch's time. There are no .crc files: Spark has checksums of its own here.
 */
public final class LocalFiles extends DelegateToFileSystem {
  public LocalFiles(URI uri, Configuration configuration) throws IOException, URISyntaxException {
    super(uri, new Raw(), configuration, "file", false);
  }

  /** Checkpoints hold no symbolic links. A link on the way to them is followed by the system. */
  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    return getFileStatus(path);
  }

  @Override
  public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
    File source = ((Raw) fsImpl).pathToFile(from);
    File target = ((Raw) fsImpl).pathToFile(to);
    try {
      if (overwrite) {
        Files.move(source.toPath(), target.toPath(), StandardCopyOption.ATOMIC_MOVE);
      } else {
        Files.move(source.toPath(), target.toPath());
      }
    } catch (java.nio.file.FileAlreadyExistsException exists) {
      // Spark takes Hadoop's exception, and no other, for "another query writes to this checkpoint".
      throw (IOException) new FileAlreadyExistsException(to + " exists already").initCause(exists);
    }
  }

  /** The same for everything that goes through Hadoop's older interface, such as Iceberg's files. */
  public static final class Checked extends LocalFileSystem {
    public Checked() {
      super(new Raw());
    }
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      String mode = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
          + permission.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(mode));
    }
  }
}
