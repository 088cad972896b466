package s3bodies_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"github.com/reprise-go/reprise/transport/sqs/s3bodies"
)

// maxBytes is the limit of bodies.
const maxBytes = 64 << 20

// random returns a body of n bytes, the same for the same n.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b) // it never fails
	return b
}

func TestStore_PutAndGet(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "shop", "shop/eu!'(1)*"} {
		for _, body := range [][]byte{{}, {0}, []byte("text"), random(5 << 20)} {
			t.Run(fmt.Sprintf("%q %d bytes", prefix, len(body)), func(t *testing.T) {
				t.Parallel()
				s := startBucket(t)
				store := s.open(t, s3bodies.Config{KeyPrefix: prefix})
				key := store.BodyKey("ABC-1")
				if err := store.Put(t.Context(), key, body); err != nil {
					t.Fatal(err)
				}
				if got := s.keys(t); len(got) != 1 || got[0] != key || got[0] != strings.TrimPrefix(prefix+"/ABC-1", "/") {
					t.Errorf("the key is %q, and the bucket has %q", key, got)
				}
				got, err := store.Get(t.Context(), key, maxBytes)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, body) {
					t.Errorf("got another body, of %d bytes", len(got))
				}
			})
		}
	}
}

// Messages of other senders name their own keys.
func TestStore_GetsKeysOfOtherSenders(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	store := s.open(t, s3bodies.Config{KeyPrefix: "shop", ReadPrefixes: []string{""}})
	for _, key := range []string{"my/prefix/3f2504e0-4f89-11d3-9a0c-0305e82c3301", "other/ü ?#%2F+&", "other//twice", "/first"} {
		s.put(t, key, "of "+key)
		if got, err := store.Get(t.Context(), key, maxBytes); err != nil || string(got) != "of "+key {
			t.Errorf("Get(%q) returned %q, %v", key, got, err)
		}
	}
}

func TestStore_GetMissing(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	store := s.open(t, s3bodies.Config{})
	for _, key := range []string{"missing", "a/missing", "", strings.Repeat("x", 1025), "a\x00b", "a/../b", ".", "\xff"} {
		_, err := store.Get(t.Context(), key, maxBytes)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the error of %.20q does not match fs.ErrNotExist: %v", key, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, bucket) || len(text) > 1500 {
			t.Errorf("the error of %.20q is %q", key, text)
		}
	}
	if n := len(s.received()); n != 2 {
		t.Errorf("there were %d requests, want 2: no object has the other keys", n)
	}
	_, err := store.Get(t.Context(), "missing", maxBytes)
	for _, want := range []string{`"missing"`, "lifecycle rule", "NoSuchKey"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

func TestStore_MissingBucket(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	store := s.open(t, s3bodies.Config{Bucket: "another-bucket"})
	_, err := store.Get(t.Context(), "key", maxBytes)
	for call, err := range map[string]error{"Get": err, "Put": store.Put(t.Context(), "key", nil)} {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the error is %v; the bodies may be in the bucket that is meant", call, err)
			continue
		}
		for _, want := range []string{`"another-bucket"`, "the bucket does not exist; create it in us-east-1, or correct Config.Bucket"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", call, want, err)
			}
		}
	}
}

func TestStore_ExplainsErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status   int
		code     string
		put, get string // in the error
		missing  bool
	}{
		{status: 403, code: "AccessDenied", put: "allow s3:PutObject on the objects", get: "allow s3:GetObject on the objects of the bucket, and s3:ListBucket on the bucket"},
		{status: 403, code: "InvalidAccessKeyId", put: "correct those in Config.AWS", get: "correct those in Config.AWS"},
		{status: 403, code: "SignatureDoesNotMatch", put: "refused the credentials", get: "refused the credentials"},
		{status: 400, code: "ExpiredToken", put: "have expired", get: "have expired"},
		{status: 503, code: "SlowDown", put: "limits the rate", get: "limits the rate"},
		{status: 429, code: "Whatever", put: "limits the rate", get: "limits the rate"},
		{status: 400, code: "KMS.DisabledException", put: "check Config.KMSKey", get: "check Config.KMSKey"},
		{status: 301, code: "PermanentRedirect", put: "the bucket is not in us-east-1", get: "the bucket is not in us-east-1"},
		{status: 403, code: "InvalidObjectState", put: "archive", get: "archive"},
		{status: 500, code: "InternalError", put: "InternalError", get: "InternalError"},
		{status: 503, code: "ServiceUnavailable", put: "ServiceUnavailable", get: "ServiceUnavailable"},
		{status: 400, code: "KeyTooLongError", put: "KeyTooLongError", get: "does not exist", missing: true},
		{status: 404, code: "NotFound", put: "NotFound", get: "NotFound"},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			s := startBucket(t)
			store := s.open(t, s3bodies.Config{KeyPrefix: "shop"})
			s.fail(tt.status, tt.code, "The text of S3.")
			_, err := store.Get(t.Context(), store.BodyKey("key"), maxBytes)
			explains(t, "get", err, tt.get, tt.code, tt.missing)
			explains(t, "put", store.Put(t.Context(), store.BodyKey("key"), []byte("body")), tt.put, tt.code, false)
		})
	}
}

func explains(t *testing.T, call string, err error, want, code string, missing bool) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: there is no error", call)
	}
	for _, want := range []string{want, "s3bodies: " + call, `"shop/key"`, `"` + bucket + `"`, "The text of S3."} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error does not say %q: %v", call, want, err)
		}
	}
	if errors.Is(err, fs.ErrNotExist) != missing {
		t.Errorf("%s: the error matches fs.ErrNotExist: %t, want %t: %v", call, !missing, missing, err)
	}
	if said, ok := errors.AsType[smithy.APIError](err); !ok || said.ErrorCode() != code {
		t.Errorf("%s: the error of the SDK is lost: %v", call, err)
	}
	hasNoSecret(t, err.Error())
}

func TestStore_Unreachable(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	s.url = "http://127.0.0.1:1"
	store := s.open(t, s3bodies.Config{})
	_, err := store.Get(t.Context(), "key", maxBytes)
	for call, err := range map[string]error{"Get": err, "Put": store.Put(t.Context(), "key", nil)} {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the error is %v", call, err)
			continue
		}
		hasNoSecret(t, err.Error())
	}
}

// hang answers nothing until the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestStore_Timeout(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	store := s.open(t, s3bodies.Config{Timeout: 50 * time.Millisecond})
	s.answer(hang)
	_, getErr := store.Get(t.Context(), "key", maxBytes)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("part"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	_, partErr := store.Get(t.Context(), "key", maxBytes)
	s.answer(hang)
	for call, err := range map[string]error{"Get": getErr, "Get of the rest": partErr, "Put": store.Put(t.Context(), "key", nil)} {
		if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "longer than Config.Timeout, 50ms") {
			t.Errorf("%s: the error is %v", call, err)
		}
	}
}

func TestStore_ContextEnds(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	store := s.open(t, s3bodies.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		hang(w, r)
	})
	_, err := store.Get(ctx, "key", maxBytes)
	for call, err := range map[string]error{"Get": err, "Put": store.Put(ctx, "key", nil)} {
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "Config.Timeout") {
			t.Errorf("%s: the error is %v, want one that matches context.Canceled", call, err)
		}
	}
}

func TestStore_DamagedObject(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		length, checksum string
		missing          bool
		want             string
	}{
		"cut off":                   {length: "100", want: "read the object"},
		"altered":                   {length: "4", checksum: "AAAAAA==", want: "checksum"},
		"larger than every message": {length: "67108865", missing: true, want: "67108865 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBucket(t)
			store := s.open(t, s3bodies.Config{})
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", tt.length)
				if tt.checksum != "" {
					w.Header().Set("X-Amz-Checksum-Crc32", tt.checksum)
				}
				_, _ = w.Write([]byte("part"))
			})
			_, err := store.Get(t.Context(), "key", maxBytes)
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, fs.ErrNotExist) != tt.missing {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestStore_Encryption(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg            s3bodies.Config
		algorithm, key string
	}{
		"the bucket's own": {},
		"a key":            {cfg: s3bodies.Config{KMSKey: "alias/bodies"}, algorithm: "aws:kms", key: "alias/bodies"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBucket(t)
			store := s.open(t, tt.cfg)
			if err := store.Put(t.Context(), "key", []byte("body")); err != nil {
				t.Fatal(err)
			}
			h := s.received()[0].Header
			for name, want := range map[string]string{
				"X-Amz-Server-Side-Encryption":                tt.algorithm,
				"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": tt.key,
			} {
				if got := h.Get(name); got != want {
					t.Errorf("the header %s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestStore_PathStyle(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	s.url = strings.Replace(s.url, "127.0.0.1", "localhost", 1) // of an IP address the SDK makes no host name
	store := s.open(t, s3bodies.Config{PathStyle: true})
	if err := store.Put(t.Context(), "key", nil); err != nil {
		t.Fatal(err)
	}
	if path := s.received()[0].URL.Path; path != "/"+bucket+"/key" {
		t.Errorf("the path is %q", path)
	}
}

func TestStore_ConcurrentUse(t *testing.T) {
	t.Parallel()
	s := startBucket(t)
	store := s.open(t, s3bodies.Config{KeyPrefix: "shop"})
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			key, body := store.BodyKey(fmt.Sprint(i)), random(1000+i)
			if err := store.Put(t.Context(), key, body); err != nil {
				t.Error(err)
				return
			}
			if got, err := store.Get(t.Context(), key, maxBytes); err != nil || !bytes.Equal(got, body) {
				t.Errorf("Get(%q) returned another body, or %v", key, err)
			}
		})
	}
	callers.Wait()
}
