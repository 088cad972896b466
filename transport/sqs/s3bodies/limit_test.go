package s3bodies_test

import (
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

// An object that is larger than a message is no body, and is not read into memory.
func TestStore_GetLargerThanAMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"2147483648", "1099511627776"} {
		store := open(t, s3bodies.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", size)
			w.WriteHeader(http.StatusOK) // without the bytes, which a client that read them would miss
		})
		_, err := store.Get(t.Context(), "key")
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), size) || !strings.Contains(err.Error(), "2147483647") {
			t.Errorf("the error of an object of %s bytes is: %v", size, err)
		}
	}
}

func TestStore_GetAtTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for _, known := range []bool{true, false} { // whether S3 tells the size
		for size, want := range map[int]bool{limit: true, limit + 1: false, 100 * limit: false} {
			store := open(t, s3bodies.Config{}, func(w http.ResponseWriter, _ *http.Request) {
				if known {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				} else {
					w.(http.Flusher).Flush()
				}
				_, _ = w.Write(make([]byte, size)) // the store may stop to read
			})
			store.SetMaxBytes(limit)
			body, err := store.Get(t.Context(), "key")
			switch {
			case want && (err != nil || len(body) != size):
				t.Errorf("of %d bytes, known: %v, there are %d, and the error is: %v", size, known, len(body), err)
			case !want && (!errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "1000")):
				t.Errorf("the error of an object of %d bytes, known: %v, is: %v", size, known, err)
			}
		}
	}
}
