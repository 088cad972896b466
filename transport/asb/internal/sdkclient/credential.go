package sdkclient

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

// TokenError is the error of a sign-in: there is no token for the service.
type TokenError struct{ error }

func (e *TokenError) Error() string { return fmt.Sprintf("sign in: %v", e.error) }

func (e *TokenError) Unwrap() error { return e.error }

// PausingCredential wraps a credential for clients: it pauses after failed attempts, and its errors contain a *TokenError.
func PausingCredential(c azcore.TokenCredential) azcore.TokenCredential {
	return &credential{TokenCredential: c}
}

// GetToken implements azcore.TokenCredential.
func (c *credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.mu.Lock()
	wait := time.Until(c.next)
	c.mu.Unlock()
	if wait > 0 {
		if err := transport.Sleep(ctx, context.Background(), wait, nil); err != nil {
			return azcore.AccessToken{}, &TokenError{err}
		}
	}
	token, err := c.TokenCredential.GetToken(ctx, options)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next = time.Now().Add(dialPause)
		return token, &TokenError{err}
	}
	return token, nil
}
