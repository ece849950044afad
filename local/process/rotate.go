package process

import (
	"io"
	"os"
)

// Rotate keeps a log below twice the limit: beyond limit bytes, its content moves to path+".1". The process that writes
// it keeps its file open in append mode, so the file is emptied, not replaced; lines written meanwhile are lost.
func Rotate(path string, limit int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= limit {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}
