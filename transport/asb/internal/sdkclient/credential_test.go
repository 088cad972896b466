package sdkclient

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// refusing is a credential that never has a token.
type refusing struct{ attempts int }

// GetToken implements azcore.TokenCredential.
func (c *refusing) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.attempts++
	return azcore.AccessToken{}, errors.New("refused")
}

func TestPausingCredential_PausesAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wrapped refusing
		c := PausingCredential(&wrapped)
		began := time.Now()
		for time.Since(began) < 10*time.Second && wrapped.attempts < 100 {
			if _, err := c.GetToken(t.Context(), policy.TokenRequestOptions{}); !isTokenError(err) {
				t.Fatalf("the error is %v", err)
			}
		}
		if wrapped.attempts > 30 {
			t.Errorf("there were %d attempts in ten seconds", wrapped.attempts)
		}
	})
}

func isTokenError(err error) bool {
	_, ok := errors.AsType[*TokenError](err)
	return ok
}
