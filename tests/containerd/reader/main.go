// Compares an image, as go-erofs reads it, with a directory: names, types, modes, owners, times, links, devices, content and extended
// attributes of all files. containerd 2.4 looks users up in layers by go-erofs, which reads only images without compression.
//
//	reader IMAGE DIRECTORY [DEVICE]...
package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	erofs "github.com/erofs/go-erofs"
)

func main() {
	if err := compare(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func compare(image, directory string, devices []string) error {
	var files []io.ReaderAt
	for _, name := range append([]string{image}, devices...) {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, file)
	}
	read, err := erofs.Open(files[0], erofs.WithExtraDevices(files[1:]...))
	if err != nil {
		return err
	}
	found, attributes := 0, 0
	err = fs.WalkDir(read, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		found++
		path := filepath.Join(directory, name)
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		stat, isStat := info.Sys().(*erofs.Stat)
		if !isStat {
			return fmt.Errorf("%s: no attributes", name)
		}
		expected, err := attributesOf(path)
		if err != nil {
			return err
		}
		// go-erofs adds a dot to the names of access control lists.
		for _, kind := range []string{"access", "default"} {
			name := "system.posix_acl_" + kind
			if value, has := stat.Xattrs[name+"."]; has {
				stat.Xattrs[name] = value
				delete(stat.Xattrs, name+".")
			}
		}
		// The digests of --inode-digests have a name that Linux does not show.
		maps.DeleteFunc(stat.Xattrs, func(name, _ string) bool { return name == "erofs.fingerprint.v1" })
		attributes += len(expected)
		if !maps.Equal(stat.Xattrs, expected) {
			return fmt.Errorf("%s: attributes %q, expected %q", name, stat.Xattrs, expected)
		}
		if err := sameStat(info, stat, path); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := read.(interface{ ReadLink(string) (string, error) }).ReadLink(name)
			if wanted, _ := os.Readlink(path); err != nil || target != wanted {
				return fmt.Errorf("%s: target %q (%v), expected %q", name, target, err, wanted)
			}
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		content, err := fs.ReadFile(read, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if wanted, err := os.ReadFile(path); err != nil || !bytes.Equal(content, wanted) {
			return fmt.Errorf("%s: other content (%v)", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	count := 0
	err = filepath.WalkDir(directory, func(string, fs.DirEntry, error) error { count++; return nil })
	if err == nil && (found != count || attributes == 0) {
		err = fmt.Errorf("%d names and %d attributes, expected %d names", found, attributes, count)
	}
	return err
}

// Compares all that lstat(2) tells of a file, but inode numbers, and sizes of directories.
func sameStat(info fs.FileInfo, stat *erofs.Stat, path string) error {
	wanted, err := os.Lstat(path)
	if err != nil {
		return err
	}
	system := wanted.Sys().(*syscall.Stat_t)
	size := info.Size()
	if info.IsDir() {
		size = wanted.Size()
	}
	device := uint64(stat.Rdev)
	if info.Mode()&fs.ModeDevice == 0 {
		device = 0
	}
	// info.Mode() has neither setuid nor sticky bits.
	found := fmt.Sprint(stat.Mode, size, info.ModTime().UnixNano(), stat.UID, stat.GID, stat.Nlink, device)
	expected := fmt.Sprint(wanted.Mode(), wanted.Size(), wanted.ModTime().UnixNano(), system.Uid, system.Gid, system.Nlink, system.Rdev)
	if found != expected {
		return fmt.Errorf("%s, expected %s", found, expected)
	}
	return nil
}

// The attributes of a file, or of a symbolic link, which the standard library would follow.
func attributesOf(path string) (map[string]string, error) {
	file, err := syscall.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	buffer := make([]byte, 1<<16)
	start, length := unsafe.Pointer(&buffer[0]), uintptr(len(buffer))
	size, _, failed := syscall.Syscall(syscall.SYS_LLISTXATTR, uintptr(unsafe.Pointer(file)), uintptr(start), length)
	if failed != 0 {
		return nil, failed
	}
	found := map[string]string{}
	for _, name := range strings.Split(string(buffer[:size]), "\x00") {
		if name == "" {
			continue
		}
		key, err := syscall.BytePtrFromString(name)
		if err != nil {
			return nil, err
		}
		size, _, failed := syscall.Syscall6(syscall.SYS_LGETXATTR, uintptr(unsafe.Pointer(file)),
			uintptr(unsafe.Pointer(key)), uintptr(start), length, 0, 0)
		if failed != 0 {
			return nil, failed
		}
		found[name] = string(buffer[:size])
	}
	return found, nil
}
