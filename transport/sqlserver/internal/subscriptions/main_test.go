package subscriptions_test

import (
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/testdatabase"
)

func TestMain(m *testing.M) { testdatabase.Main(m) }
