// Judges histories of topic registers with Porcupine, an independent linearizability checker.
//
// Each line of the input is a history, a JSON list of operations {op, invoked, returned}; returned
// is null for an operation of unknown outcome. Each line of the output is true or false.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Op       string `json:"op"`
	Invoked  int64  `json:"invoked"`
	Returned *int64 `json:"returned"`
}

type input struct {
	op        string
	isUnknown bool
}

// step returns the states after an operation; none if it cannot have its result in this state.
func step(isPresent bool, op string) []interface{} {
	switch op {
	case "create":
		if isPresent {
			return nil
		}
		return []interface{}{true}
	case "delete":
		if !isPresent {
			return nil
		}
		return []interface{}{false}
	case "leave-present":
		return []interface{}{true}
	case "leave-absent":
		return []interface{}{false}
	case "is-present", "is-absent":
		if isPresent == (op == "is-present") {
			return []interface{}{isPresent}
		}
		return nil
	}
	panic("no operation: " + op)
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{false} },
	Step: func(state, in, _ interface{}) []interface{} {
		given := in.(input)
		states := step(state.(bool), given.op)
		if given.isUnknown {
			// It may as well have no effect.
			states = append(states, state)
		}
		return states
	},
}).ToModel()

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var history []operation
		if err := json.Unmarshal(lines.Bytes(), &history); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		var operations []porcupine.Operation
		for client, op := range history {
			returned := int64(math.MaxInt64)
			if op.Returned != nil {
				returned = *op.Returned
			}
			operations = append(operations, porcupine.Operation{
				ClientId: client,
				Input:    input{op: op.Op, isUnknown: op.Returned == nil},
				Call:     op.Invoked,
				Return:   returned,
			})
		}
		fmt.Println(porcupine.CheckOperations(model, operations))
	}
}
