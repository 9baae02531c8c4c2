package system

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapBinary lets go of the pages of the program that the start needed: schemas,
// tables and code that run once. The kernel maps those that are needed again from its
// cache, where they stay for as long as there is memory for them.
func unmapBinary() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range cleanMappings(bytes.NewReader(smaps), path) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.length, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmap pages of %s: %w", path, errno)
		}
	}
	return nil
}

// mapping is a part of the address space, in bytes.
type mapping struct{ start, length uintptr }

// cleanMappings are the mappings of a file, as /proc/self/smaps has them, that cannot be
// written to and never were: each page of them is as it is in the file.
func cleanMappings(smaps io.Reader, path string) []mapping {
	var clean []mapping
	var current mapping
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) < 2:
		case !strings.HasSuffix(fields[0], ":"): // the first line of a mapping has addresses there
			current = mapping{}
			if permissions := fields[1]; fields[len(fields)-1] == path && strings.HasPrefix(permissions, "r-") && strings.HasSuffix(permissions, "p") {
				current = mappingOf(fields[0])
			}
		case fields[0] == "Anonymous:" && fields[1] == "0" && current.length > 0:
			clean = append(clean, current)
		}
	}
	return clean
}

// mappingOf reads "start-end", both hexadecimal.
func mappingOf(addresses string) mapping {
	low, high, _ := strings.Cut(addresses, "-")
	start, err := strconv.ParseUint(low, 16, strconv.IntSize)
	if err != nil {
		return mapping{}
	}
	end, err := strconv.ParseUint(high, 16, strconv.IntSize)
	if err != nil || end < start {
		return mapping{}
	}
	return mapping{uintptr(start), uintptr(end - start)}
}
