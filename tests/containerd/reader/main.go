// Compares an image, as go-erofs reads it, with a directory: the names, the content and the extended attributes of all files.
// containerd 2.4 looks users up in layers by go-erofs, which reads only images without compression.
//
//	reader IMAGE DIRECTORY
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	erofs "github.com/erofs/go-erofs"
)

func main() {
	if err := compare(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func compare(image, directory string) error {
	file, err := os.Open(image)
	if err != nil {
		return err
	}
	defer file.Close()
	read, err := erofs.Open(file)
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
		// The digests of --inode-digests have a name that Linux does not show.
		maps.DeleteFunc(stat.Xattrs, func(name, _ string) bool { return name == "erofs.fingerprint.v1" })
		attributes += len(expected)
		if !maps.Equal(stat.Xattrs, expected) {
			return fmt.Errorf("%s: attributes %q, expected %q", name, stat.Xattrs, expected)
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

func attributesOf(path string) (map[string]string, error) {
	buffer := make([]byte, 1<<16)
	found := map[string]string{}
	count, err := syscall.Listxattr(path, buffer)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(buffer[:count]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 1<<16)
		size, err := syscall.Getxattr(path, name, value)
		if err != nil {
			return nil, err
		}
		found[name] = string(value[:size])
	}
	return found, nil
}
