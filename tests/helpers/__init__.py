"""What tests share: problems with known answers, other derivations, samplers, faults and garbage."""
