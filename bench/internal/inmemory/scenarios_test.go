package inmemory

import (
	"testing"

	"github.com/reprise-go/reprise/bench/internal/scenario/scenariotest"
)

func TestScenarios_Run(t *testing.T) { scenariotest.Run(t, Scenarios()) }
