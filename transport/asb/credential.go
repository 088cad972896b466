package asb

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/reprise-go/reprise/transport"
)

// credential wraps another credential, and marks its errors to distinguish them from
// those of the service. It pauses after failed attempts: the SDK, which renews the token
// of each link in the background, does not (see dialer).
type credential struct {
	azcore.TokenCredential

	mu   sync.Mutex // guards next
	next time.Time  // no attempt begins before
}

// tokenError is the error of a sign-in: there is no token for the service.
type tokenError struct{ error }

func (e *tokenError) Error() string { return fmt.Sprintf("sign in: %v", e.error) }

func (e *tokenError) Unwrap() error { return e.error }

// GetToken implements azcore.TokenCredential.
func (c *credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.mu.Lock()
	wait := time.Until(c.next)
	c.mu.Unlock()
	if wait > 0 {
		if err := transport.Sleep(ctx, context.Background(), wait, nil); err != nil {
			return azcore.AccessToken{}, &tokenError{err}
		}
	}
	token, err := c.TokenCredential.GetToken(ctx, options)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next = time.Now().Add(dialPause)
		return token, &tokenError{err}
	}
	return token, nil
}
