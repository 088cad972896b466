package condition

import (
	"errors"
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

func TestOf_WrappedErrors(t *testing.T) {
	t.Parallel()
	refused := Errorf(NotFound, "the entity '%s' could not be found", "q")
	if got := Of(fmt.Errorf("receive: %w", refused)); got != NotFound {
		t.Errorf("the condition is %s", got)
	}
	if got := Of(errors.New("disk full")); got != InternalError {
		t.Errorf("the condition of another error is %s", got)
	}
	if got := refused.Error(); got != "amqp:not-found: the entity 'q' could not be found" {
		t.Errorf("the text is %q", got)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for condition, want := range map[amqp10.Symbol]int32{
		MessageLockLost: 410, SessionLockLost: 410, NotFound: 404, MessageNotFound: 404, EntityDisabled: 403, ResourceLimit: 403,
		EntityAlreadyExists: 409, Timeout: 408, ArgumentRange: 400, NotImplemented: 501, InternalError: 500, "other": 500,
	} {
		if got := Errorf(condition, "").Status(); got != want {
			t.Errorf("%s: %d, want %d", condition, got, want)
		}
	}
}
