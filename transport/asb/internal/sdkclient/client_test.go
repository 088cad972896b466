package sdkclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// panicking is a source at whose messages the SDK panics.
type panicking struct{}

// ReceiveMessages implements Source.
func (panicking) ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error) {
	panic("wrong type")
}

func newTestClient(replace func(*Client)) *Client {
	return &Client{dialer: &dialer{}, Replace: replace, todo: make(chan *task), ended: make(chan struct{})}
}

func TestFetch_ReturnsThePanicOfTheSDKAsAnError(t *testing.T) {
	_, err := Fetch(t.Context(), newTestClient(nil), panicking{}, 1, nil)
	if _, unreadable := errors.AsType[*UnreadableError](err); !unreadable || !strings.Contains(err.Error(), "wrong type") {
		t.Errorf("the error is %v", err)
	}
}

func TestCall_IsGivenUpAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks = sync.Pool{New: tasks.New} // a task of another test has a channel that is not of this bubble: time would stand still
		replaced := 0
		c := newTestClient(func(*Client) { replaced++ })
		defer close(c.ended)
		answer, abandoned := make(chan int), make(chan int, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Call(ctx, c, "ask", func() (int, error) { return <-answer, nil }, func(n int) { abandoned <- n })
		if !IsStuck(err) || WasNotMade(err) || !errors.Is(err, context.Canceled) || !c.Stuck() || replaced != 1 {
			t.Errorf("the error is %v; stuck: %v, replaced %d times", err, c.Stuck(), replaced)
		}
		if err := c.Do(t.Context(), "ask", func() error { return nil }); !WasNotMade(err) {
			t.Errorf("the next call returned %v", err)
		}
		answer <- 7
		if got := <-abandoned; got != 7 {
			t.Errorf("the late answer is %d", got)
		}
	})
}

func TestConfig_ShowsNoSecret(t *testing.T) {
	c := &Config{ConnectionString: "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=name;SharedAccessKey=secret"}
	if got := fmt.Sprintf("%v %+v", c, c); got != "shop.servicebus.windows.net shop.servicebus.windows.net" {
		t.Errorf("it is shown as %s", got)
	}
}
