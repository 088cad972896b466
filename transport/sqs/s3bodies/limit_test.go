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

// A larger object is no body, and is not read into memory.
func TestStore_GetObeysLimit(t *testing.T) {
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
			body, err := store.Get(t.Context(), "key", limit)
			switch {
			case want && (err != nil || len(body) != size):
				t.Errorf("of %d bytes, known: %v, there are %d, and the error is: %v", size, known, len(body), err)
			case !want && (!errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "1000") || !strings.Contains(err.Error(), "sqs.Config.MaxMessageBytes")):
				t.Errorf("the error of an object of %d bytes, known: %v, is: %v", size, known, err)
			}
		}
	}
	store := open(t, s3bodies.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1099511627776")
		w.WriteHeader(http.StatusOK) // without the bytes, which a client that read them would miss
	})
	if _, err := store.Get(t.Context(), "key", limit); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "1099511627776") {
		t.Errorf("the error of an object of 1 TiB is: %v", err)
	}
}

// An object that a sender may not name is not requested.
func TestStore_ReadPrefixes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg          s3bodies.Config
		read, unread []string
	}{
		"no prefix":         {s3bodies.Config{}, []string{"a", "shop/a", "other/b/c"}, nil},
		"KeyPrefix":         {s3bodies.Config{KeyPrefix: "shop"}, []string{"shop/a", "shop/b/c"}, []string{"a", "shop", "shops/a", "other/a", "/shop/a", "Shop/a"}},
		"ReadPrefixes":      {s3bodies.Config{KeyPrefix: "shop", ReadPrefixes: []string{"my/other"}}, []string{"shop/a", "my/other/a"}, []string{"a", "my/a", "my/others/a"}},
		"all":               {s3bodies.Config{KeyPrefix: "shop", ReadPrefixes: []string{""}}, []string{"a", "shop/a", "other/a"}, nil},
		"without KeyPrefix": {s3bodies.Config{ReadPrefixes: []string{"other"}}, []string{"a", "shop/a", "other/a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := make(chan string, 100)
			store := open(t, c.cfg, func(w http.ResponseWriter, r *http.Request) {
				requests <- r.URL.Path
				_, _ = w.Write([]byte("body"))
			})
			for _, key := range c.read {
				if body, err := store.Get(t.Context(), key, 1000); err != nil || string(body) != "body" {
					t.Errorf("Get(%q) returned %q, %v", key, body, err)
				}
			}
			for _, key := range c.unread {
				_, err := store.Get(t.Context(), key, 1000)
				if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "Config.ReadPrefixes") {
					t.Errorf("the error of Get(%q) is: %v", key, err)
				}
			}
			if n := len(requests); n != len(c.read) {
				t.Errorf("there were %d requests, want %d", n, len(c.read))
			}
		})
	}
}
