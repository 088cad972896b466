//go:build darwin || linux

package sqs

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// A guard checks the credentials of requests. It does not check signatures: any secret is
// accepted.
type guard struct {
	accessKey atomic.Value // a string; "": any
	expired   atomic.Bool
	skew      atomic.Bool
}

// maxSkew is how far the time of a signature may be from the server's.
const maxSkew = 15 * time.Minute

// check returns the error for a request that is not signed, or whose signature the service
// would refuse.
func (g *guard) check(r *http.Request, now clock.Instant) *api.Error {
	credential := credentialOf(r.Header.Get("Authorization"))
	if credential == "" {
		return api.Failure("MissingAuthenticationTokenException", "Request is missing Authentication Token")
	}
	if g.skew.Load() {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if difference := now.Sub(clock.At(signed)).Abs(); err != nil || difference > maxSkew {
			return TimeTooSkewed.failure()
		}
	}
	key, _, _ := strings.Cut(credential, "/")
	if wanted, _ := g.accessKey.Load().(string); wanted != "" && key != wanted {
		return InvalidClientToken.failure()
	}
	if g.expired.Load() {
		return ExpiredToken.failure()
	}
	return nil
}

// credentialOf returns the credential of an Authorization header such as
// "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/sqs/aws4_request, SignedHeaders=...".
func credentialOf(authorization string) string {
	_, rest, ok := strings.Cut(authorization, "Credential=")
	if !ok || !strings.HasPrefix(authorization, "AWS4-") {
		return ""
	}
	credential, _, _ := strings.Cut(rest, ",")
	return strings.TrimSpace(credential)
}

// SetAccessKey has only requests with this key accepted from now on, as Config.AccessKey does.
func (s *Server) SetAccessKey(key string) { s.guard.accessKey.Store(key) }

// SetCredentialsExpired has all requests answered with ExpiredToken, or no longer.
func (s *Server) SetCredentialsExpired(on bool) { s.guard.expired.Store(on) }

// CheckClocks switches the check of signature times: with it, the server answers
// RequestTimeTooSkewed to a request signed more than 15 minutes before or after the server's
// clock. Use Advance to cause that; the answer's header Date tells the SDK the server's time.
func (s *Server) CheckClocks(on bool) { s.guard.skew.Store(on) }
